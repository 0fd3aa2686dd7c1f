# liblantern.so: include/lantern/engine.h and engine_c.h for other programs; nothing but lantern_* is shown. And what
# `cmake --install` gives: the program, both shared libraries, headers, and a package for find_package(lantern).
add_library(lantern_shared SHARED src/engine/engine_c_abi.cc)
set_target_properties(lantern_shared PROPERTIES OUTPUT_NAME lantern SOVERSION 1 EXPORT_NAME lantern
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(lantern_shared PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
  PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(lantern_shared PRIVATE lantern_options $<BUILD_INTERFACE:lantern_engine>)
target_link_options(lantern_shared PRIVATE -Wl,--no-undefined -Wl,--exclude-libs,ALL)
set_target_properties(lantern_attention_shared PROPERTIES EXPORT_NAME attention)

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS lantern RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS lantern_shared lantern_attention_shared EXPORT lanternTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/lantern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set(lantern_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lantern)
install(EXPORT lanternTargets NAMESPACE lantern:: FILE lanternTargets.cmake DESTINATION ${lantern_package_dir})
file(WRITE ${CMAKE_BINARY_DIR}/lanternConfig.cmake
  "# lantern::lantern (engine.h, engine_c.h) and lantern::attention (plan.h, attention.h).\n"
  "include(\${CMAKE_CURRENT_LIST_DIR}/lanternTargets.cmake)\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/lanternConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/lanternConfig.cmake ${CMAKE_BINARY_DIR}/lanternConfigVersion.cmake
  DESTINATION ${lantern_package_dir})
