# liblantern_attention.so: include/lantern/plan.h and attention.h for other engines. It needs the C library, libhwy and,
# with CUDA, the driver when something on a GPU is made; fmt is compiled in, the CUDA runtime and the C++ library are
# linked in (its users load it beside their own), and nothing but lantern_* is shown.
set(attention_shared_sources
  src/base/check.cc src/base/result.cc
  src/device/bucket_key.cc src/device/capture_guard.cc src/device/device.cc src/device/memory_ledger.cc
  src/attention/attention_c_abi.cc src/attention/c_arrays.cc
  src/attention/plan/plan_c_abi.cc src/attention/plan/plan_config.cc src/attention/plan/plan_faults.cc
  src/attention/plan/plan_on_host.cc src/attention/plan/plan_rows_host.cc src/attention/plan/plan_schedules_host.cc
  src/attention/plan/plan_tokens_host.cc src/attention/plan/step_limits.cc src/attention/plan/step_plan_buffers.cc)
add_library(lantern_attention_shared SHARED ${attention_shared_sources})
set_target_properties(lantern_attention_shared PROPERTIES OUTPUT_NAME lantern_attention SOVERSION 1
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON INSTALL_RPATH $ORIGIN
  BUILD_WITH_INSTALL_RPATH ON LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/lantern_attention.map)
target_include_directories(lantern_attention_shared PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> PRIVATE src)
target_compile_definitions(lantern_attention_shared PRIVATE FMT_HEADER_ONLY)
# Ops and kernels are compiled once: what is missing after the sources above is taken from the archives.
add_dependencies(lantern_attention_shared lantern_attention lantern_device lantern_base)
target_link_libraries(lantern_attention_shared PRIVATE lantern_options $<TARGET_FILE:lantern_attention>
  $<TARGET_FILE:lantern_device> $<TARGET_FILE:lantern_base> PkgConfig::Highway Threads::Threads)
target_link_options(lantern_attention_shared PRIVATE -Wl,--no-undefined
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/lantern_attention.map)
if(NOT LANTERN_SANITIZE)
  target_link_options(lantern_attention_shared PRIVATE -static-libstdc++ -static-libgcc)
endif()
if(LANTERN_CUDA)
  target_link_libraries(lantern_attention_shared PRIVATE CUDA::cudart_static)
endif()
