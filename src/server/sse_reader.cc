#include "server/sse_reader.h"

#include <algorithm>

namespace lantern {

void SseReader::end_line(const std::function<void(std::string_view data)>& event) {
  if (line_.empty()) {
    if (has_data_) event(data_);
    has_data_ = false;
    data_.clear();
  } else if (line_ == "data" || line_.starts_with("data:")) {
    if (has_data_) data_ += '\n';
    has_data_ = true;
    std::string_view value = std::string_view(line_).substr(std::min<size_t>(5, line_.size()));
    if (value.starts_with(' ')) value.remove_prefix(1);
    data_ += value;
  }
  line_.clear();
}

bool SseReader::push(std::string_view bytes, const std::function<void(std::string_view data)>& event) {
  while (!bytes.empty()) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    line_ += bytes.substr(0, end);
    if (line_.size() + data_.size() > kMostBytes) return false;
    if (end == bytes.size()) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(event);
  }
  return true;
}

}  // namespace lantern
