// The files of src/server/web, built into the program by cmake/LanternWebPage.cmake.
#pragma once

#include <span>
#include <string_view>

namespace lantern {

struct WebFile {
  std::string_view name;          // "chat.js"
  std::string_view content_type;  // "text/javascript; charset=utf-8"
  std::string_view etag;          // of its bytes, with its quotes
  std::string_view bytes;
};

std::span<const WebFile> web_files();

}  // namespace lantern
