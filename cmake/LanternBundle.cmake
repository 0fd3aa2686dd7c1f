# `cmake --build --preset bundle`: build/bundle/lantern-VERSION and an archive of it (docs/bundle.md).
add_custom_target(bundle COMMAND ${CMAKE_SOURCE_DIR}/tools/bundle.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}/build/bundle
  ${PROJECT_VERSION} --archive VERBATIM USES_TERMINAL)
add_dependencies(bundle lantern lantern_attention_shared)
# Old tags: the libraries' own dependencies are looked for beside them as well.
set_target_properties(lantern PROPERTIES INSTALL_RPATH $ORIGIN/../lib BUILD_WITH_INSTALL_RPATH ON)
target_link_options(lantern PRIVATE -Wl,--disable-new-dtags)
