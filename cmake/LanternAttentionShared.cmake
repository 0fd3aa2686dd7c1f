# liblantern_attention.so: include/lantern/plan.h for other engines. It needs the C and C++ libraries and, with CUDA, the
# driver when a plan for it is made; fmt is compiled in, the CUDA runtime linked in, and nothing but lantern_* is shown.
set(attention_shared_sources
  src/base/check.cc src/base/result.cc
  src/device/bucket_key.cc src/device/capture_guard.cc src/device/device.cc src/device/memory_ledger.cc
  src/attention/plan/plan_c_abi.cc src/attention/plan/plan_config.cc src/attention/plan/plan_faults.cc
  src/attention/plan/plan_on_host.cc src/attention/plan/plan_rows_host.cc src/attention/plan/plan_schedules_host.cc
  src/attention/plan/plan_tokens_host.cc src/attention/plan/step_limits.cc src/attention/plan/step_plan_buffers.cc)
if(NOT LANTERN_CUDA)
  list(APPEND attention_shared_sources src/attention/plan/plan_kernels_without_cuda.cc)
endif()
add_library(lantern_attention_shared SHARED ${attention_shared_sources})
set_target_properties(lantern_attention_shared PROPERTIES OUTPUT_NAME lantern_attention SOVERSION 1
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(lantern_attention_shared PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> PRIVATE src)
target_compile_definitions(lantern_attention_shared PRIVATE FMT_HEADER_ONLY)
target_link_libraries(lantern_attention_shared PRIVATE lantern_options Threads::Threads)
target_link_options(lantern_attention_shared PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
if(LANTERN_CUDA)
  # The kernels are compiled once: what is missing after the sources above is taken from the archive.
  add_dependencies(lantern_attention_shared lantern_attention)
  target_link_libraries(lantern_attention_shared PRIVATE $<TARGET_FILE:lantern_attention> CUDA::cudart_static)
endif()
