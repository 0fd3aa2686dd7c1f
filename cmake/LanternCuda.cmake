# CUDA is an addition: LANTERN_CUDA is on when nvcc is found; without nvcc, the CPU build is complete and files named
# *_without_cuda.cc stand in for src/**.cu. LANTERN_REQUIRE_CUDA makes a missing nvcc an error (preset cuda).
option(LANTERN_REQUIRE_CUDA "Fail when nvcc is not found" OFF)
# Machine code for Hopper, and code that the driver compiles for anything from Ampere on.
set(LANTERN_CUDA_ARCHITECTURES "80-virtual;90a-real" CACHE STRING "GPU architectures to compile for")

find_program(LANTERN_NVCC nvcc PATHS /usr/local/cuda/bin)
if(LANTERN_SANITIZE)
  # The sanitizers know nothing of device memory, and nvcc nothing of their flags.
  set(LANTERN_CUDA OFF)
elseif(LANTERN_NVCC)
  set(CMAKE_CUDA_COMPILER ${LANTERN_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES ${LANTERN_CUDA_ARCHITECTURES})
  # Linked in, so that the program starts where there is no CUDA; the driver is looked for at run time.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(LANTERN_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of nvcc
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit REQUIRED)
  set(LANTERN_CUDA ON)
elseif(LANTERN_REQUIRE_CUDA)
  message(FATAL_ERROR "LANTERN_REQUIRE_CUDA is on but nvcc was not found in PATH or /usr/local/cuda/bin")
else()
  set(LANTERN_CUDA OFF)
endif()
