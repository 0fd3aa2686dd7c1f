# The web page becomes part of lantern_server: its files as arrays of bytes in one generated source, made anew when one
# of them changes.
file(GLOB LANTERN_WEB_FILES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/server/web/*)
set(LANTERN_WEB_SOURCE ${CMAKE_BINARY_DIR}/web_page.cc)
add_custom_command(
  OUTPUT ${LANTERN_WEB_SOURCE}
  COMMAND ${CMAKE_COMMAND} -DTO=${LANTERN_WEB_SOURCE} "-DFILES=${LANTERN_WEB_FILES}" -P
          ${CMAKE_SOURCE_DIR}/cmake/embed_web_files.cmake
  DEPENDS ${LANTERN_WEB_FILES} ${CMAKE_SOURCE_DIR}/cmake/embed_web_files.cmake
  COMMENT "Building the web page in"
  VERBATIM)
target_sources(lantern_server PRIVATE ${LANTERN_WEB_SOURCE})
