# Debian 12 packages; docs/dependencies.md says why each is here and what replaces it.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(CLI11 2.1 REQUIRED)
find_package(GTest 1.12 REQUIRED)
pkg_check_modules(Highway REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(Pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(Edit REQUIRED IMPORTED_TARGET libedit)
# Tests that need one of these are left out, with a notice, where it is missing.
find_package(rapidcheck QUIET)
pkg_check_modules(Utf8proc QUIET IMPORTED_TARGET libutf8proc)
