# Language level, warnings and compile acceleration for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

option(LANTERN_WERROR "Treat warnings as errors" ON)
set(LANTERN_SANITIZE "" CACHE STRING "Sanitizers to build with, e.g. address,undefined or thread")

find_program(LANTERN_CCACHE ccache)
if(LANTERN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${LANTERN_CCACHE})
endif()

find_program(LANTERN_MOLD mold)
if(LANTERN_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(lantern_options INTERFACE)
# Paths in messages are relative to the checkout, so that builds in different folders share cached objects.
set(lantern_flags -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -fno-math-errno -ffp-contract=off
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(LANTERN_WERROR)
  list(APPEND lantern_flags -Werror)
endif()
# nvcc hands g++ what follows -Xcompiler. Code that nvcc writes itself trips over -Wconversion. 554: Fixed<const T> has a
# conversion to itself, ruled out by a constraint that nvcc does not look at.
set(lantern_cuda_host_flags ${lantern_flags})
list(REMOVE_ITEM lantern_cuda_host_flags -Wconversion)
list(JOIN lantern_cuda_host_flags "," lantern_cuda_host_flags)
target_compile_options(lantern_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${lantern_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${lantern_cuda_host_flags};-lineinfo;-diag-suppress=554;--expt-relaxed-constexpr;--fmad=false>")
# fmt 9 does not trust nvcc with constexpr, without which its check of format strings does not compile.
target_compile_definitions(lantern_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
if(LANTERN_WERROR)
  target_compile_options(lantern_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(LANTERN_SANITIZE)
  target_compile_options(lantern_options INTERFACE -fsanitize=${LANTERN_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(lantern_options INTERFACE -fsanitize=${LANTERN_SANITIZE})
endif()
