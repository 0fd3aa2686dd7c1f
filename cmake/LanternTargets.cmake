include(GoogleTest)

# Files for one instruction set are named after it and are the only ones built with its flags; whether the machine
# has it is asked at run time before anything in them is called. GCC 12 takes the undefined registers of its own AVX-512
# headers for uninitialised variables.
function(lantern_isa_flags)
  foreach(source ${ARGN})
    if(source MATCHES "_amx\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mamx-tile;-mamx-bf16;-mfma;-mf16c;-Wno-maybe-uninitialized"
        SKIP_PRECOMPILE_HEADERS ON)
    elseif(source MATCHES "_avx512bf16\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mavx512vbmi;-mfma;-mf16c;-Wno-maybe-uninitialized"
        SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# lantern_library(NAME LINKS ... PRIVATE_LINKS ...): src/NAME/**.cc becomes lantern_NAME, with src/NAME/**.cu where
# CUDA was found; src/NAME/**_without_cuda.cc is for builds that have none of those, **_without_xgrammar.cc for those
# without xgrammar. src/NAME/**_test.cc becomes the test executable lantern_NAME_tests, registered with CTest under the
# label NAME.
function(lantern_library name)
  cmake_parse_arguments(arg "" "" "LINKS;PRIVATE_LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  if(LANTERN_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cu)
  endif()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cc$")
  if(cuda_sources)
    list(FILTER sources EXCLUDE REGEX "_without_cuda\\.cc$")
  endif()
  if(LANTERN_GRAMMAR)
    list(FILTER sources EXCLUDE REGEX "_without_xgrammar\\.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/grammar_xgrammar\\.cc$")
  endif()
  if(sources OR cuda_sources)
    add_library(lantern_${name} STATIC ${sources} ${cuda_sources})
    lantern_isa_flags(${sources})
    target_include_directories(lantern_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(lantern_${name} PUBLIC ${arg_LINKS} PRIVATE lantern_options ${arg_PRIVATE_LINKS})
  else()
    add_library(lantern_${name} INTERFACE)
    target_link_libraries(lantern_${name} INTERFACE ${arg_LINKS})
  endif()
  if(tests)
    lantern_test(lantern_${name}_tests LABEL ${name} SOURCES ${tests} LINKS lantern_${name} ${arg_PRIVATE_LINKS})
  endif()
endfunction()

# lantern_test(TARGET LABEL label SOURCES ... LINKS ...): a GoogleTest executable, one CTest entry per test.
function(lantern_test target)
  cmake_parse_arguments(arg "" "LABEL" "SOURCES;LINKS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE lantern_options ${arg_LINKS} GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE LANTERN_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    LANTERN_BINARY_DIR="${CMAKE_BINARY_DIR}")
  gtest_discover_tests(${target} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${arg_LABEL}" TIMEOUT 600)
endfunction()

function(lantern_executable target source)
  cmake_parse_arguments(arg "" "" "LINKS" ${ARGN})
  if(EXISTS ${CMAKE_SOURCE_DIR}/${source})
    add_executable(${target} ${source})
    target_link_libraries(${target} PRIVATE lantern_options ${arg_LINKS})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  endif()
endfunction()
