# cmake -DTO=FILE -DFILES=LIST -P: writes the source that defines web_files() (src/server/web_page.h).
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(entries "")
set(index 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE ".*\\." "" ending ${name})
  if(NOT DEFINED type_${ending})
    message(FATAL_ERROR "${file}: no content type is known for .${ending}; add it to embed_web_files.cmake")
  endif()
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  string(APPEND arrays "constexpr char kFile${index}[] = {${bytes}};\n")
  string(APPEND entries
    "    {\"${name}\", \"${type_${ending}}\", \"\\\"${hash}\\\"\", {kFile${index}, sizeof kFile${index}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${TO} "#include \"server/web_page.h\"

namespace lantern {
namespace {

${arrays}
constexpr WebFile kFiles[] = {
${entries}};

}  // namespace

std::span<const WebFile> web_files() { return kFiles; }

}  // namespace lantern
")
