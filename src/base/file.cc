#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lantern {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

}  // namespace

Result<std::string> read_descriptor(int descriptor, const std::string& name, size_t most_bytes) {
  std::string text;
  size_t used = 0;
  while (true) {
    // One byte more than allowed is enough to know that there is too much.
    if (used == text.size()) text.resize(std::min(std::max(2 * used, kPieceBytes), most_bytes + 1));
    const ssize_t got = ::read(descriptor, text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error(ErrorCode::kIo, fmt::format("{} cannot be read: {}", name, std::strerror(errno)));
    }
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > most_bytes) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{} has more than the {} bytes that are read of such a file", name, most_bytes));
    }
  }
  text.resize(used);
  return text;
}

Result<std::string> read_file(const std::filesystem::path& path, size_t most_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int reason = errno;
    return Error(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 fmt::format("{} cannot be opened: {}", path.string(), std::strerror(reason)));
  }
  Result<std::string> text = read_descriptor(descriptor, path.string(), most_bytes);
  ::close(descriptor);
  return text;
}

}  // namespace lantern
