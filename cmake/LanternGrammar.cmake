# The C++ core of xgrammar, for structured output: tools/setup.sh unpacks its source package into build/third_party. We
# compile it in a target of our own: its build forces -Werror and link-time optimisation, and wants Python.
set(LANTERN_XGRAMMAR_VERSION 0.2.8)
set(LANTERN_XGRAMMAR_DIR ${CMAKE_SOURCE_DIR}/build/third_party/xgrammar-${LANTERN_XGRAMMAR_VERSION}
    CACHE PATH "Source of xgrammar ${LANTERN_XGRAMMAR_VERSION}; empty: build without structured output")

# Looked for again by every build: ./run may fetch it after a folder was configured.
set(LANTERN_GRAMMAR OFF)
set(xgrammar_sources)
if(LANTERN_XGRAMMAR_DIR)
  file(GLOB_RECURSE xgrammar_sources CONFIGURE_DEPENDS ${LANTERN_XGRAMMAR_DIR}/cpp/*.cc)
  list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/tvm_ffi/")
endif()
if(xgrammar_sources)
  set(LANTERN_GRAMMAR ON)
  add_library(lantern_xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
  target_include_directories(lantern_xgrammar SYSTEM PUBLIC ${LANTERN_XGRAMMAR_DIR}/include
    ${LANTERN_XGRAMMAR_DIR}/3rdparty/dlpack/include ${LANTERN_XGRAMMAR_DIR}/3rdparty/picojson)
  target_compile_definitions(lantern_xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_compile_options(lantern_xgrammar PRIVATE -w)
  # Its own standard: in C++20 clang instantiates destructors of vectors of its types before those are complete.
  set_target_properties(lantern_xgrammar PROPERTIES CXX_STANDARD 17)
  if(LANTERN_SANITIZE)
    target_compile_options(lantern_xgrammar PRIVATE -fsanitize=${LANTERN_SANITIZE} -fno-omit-frame-pointer)
  endif()
  target_link_libraries(lantern_xgrammar PUBLIC Threads::Threads)
else()
  message(STATUS "xgrammar ${LANTERN_XGRAMMAR_VERSION} was not found in ${LANTERN_XGRAMMAR_DIR}: no structured output")
endif()
