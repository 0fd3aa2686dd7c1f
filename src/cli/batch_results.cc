#include "cli/batch_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace lantern::cli {
namespace {

namespace json = boost::json;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr auto kSyncInterval = std::chrono::seconds(1);

// The object of a line that is a result, else nothing.
std::optional<json::object> parse_result(std::string_view line) {
  json::error_code failure;
  json::value document = json::parse(line, failure);
  if (failure || !document.is_object()) return std::nullopt;
  const json::object& object = document.get_object();
  const json::value* id = object.if_contains("id");
  if (id == nullptr || !id->is_string() || !object.contains("custom_id") || !object.contains("response"))
    return std::nullopt;
  return std::move(document.get_object());
}

bool is_answer(const json::value& response) {
  const json::object* object = response.if_object();
  const json::value* status = object == nullptr ? nullptr : object->if_contains("status_code");
  return status != nullptr && *status == 200;
}

}  // namespace

Result<BatchResults> BatchResults::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return Error(ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  BatchResults results(path, file);
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(file, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES)) {
    return Error(ErrorCode::kIo,
                 fmt::format("{}: another run is writing it; wait for its end or name another file", path));
  }
  // Devices and pipes hold no earlier results, and some of them never end.
  struct stat status{};
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) RETURN_IF_ERROR(results.read());
  return results;
}

BatchResults::BatchResults(BatchResults&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_),
      custom_ids_(std::move(other.custom_ids_)),
      ids_(std::move(other.ids_)),
      answered_(std::move(other.answered_)),
      unsynced_(other.unsynced_),
      last_sync_(other.last_sync_) {}

BatchResults::~BatchResults() {
  if (file_ >= 0) ::close(file_);
}

Status BatchResults::fail(std::string_view what) const {
  return Error(ErrorCode::kIo, fmt::format("{}: {}: {}", path_, what, std::strerror(errno)));
}

Status BatchResults::read_line(std::string_view line, int64_t number) {
  std::optional<json::object> result = parse_result(line);
  if (!result) {
    return Error(
        ErrorCode::kCorrupt,
        fmt::format("{}: line {} is no result of a batch; name a new file or one of an earlier run", path_, number));
  }
  const std::string_view id = result->at("id").get_string();
  ids_.emplace(id);
  const bool answered = is_answer(result->at("response"));
  if (answered) answered_.emplace(id);
  if (const json::string* custom_id = result->at("custom_id").if_string()) {
    custom_ids_.emplace(std::string_view(*custom_id));
    if (answered) answered_.emplace(std::string_view(*custom_id));
  }
  ++size_;
  return {};
}

Status BatchResults::read() {
  std::string pending;  // begins with a line
  std::vector<char> buffer(kReadBytes);
  off_t offset = 0;  // of `pending` in the file
  int64_t number = 0;
  while (true) {
    const ssize_t count = ::pread(file_, buffer.data(), buffer.size(), offset + static_cast<off_t>(pending.size()));
    if (count < 0) return fail("cannot be read");
    if (count == 0) break;
    pending.append(buffer.data(), static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      RETURN_IF_ERROR(read_line(std::string_view(pending).substr(begin, end - begin), ++number));
    }
    pending.erase(0, begin);
    offset += static_cast<off_t>(begin);
  }
  if (pending.empty()) return {};
  if (parse_result(pending)) {  // whole but for its end
    RETURN_IF_ERROR(read_line(pending, ++number));
    return ::write(file_, "\n", 1) == 1 ? Status() : fail("cannot be written");
  }
  // A line that does not even begin like a result is not ours to cut.
  if (number == 0 && !pending.starts_with('{')) return read_line(pending, 1);
  return ::ftruncate(file_, offset) == 0 ? Status() : fail("its unfinished last line cannot be cut off");
}

Status BatchResults::add(std::string_view line) {
  const std::string whole = std::string(line) + "\n";
  for (size_t written = 0; written < whole.size();) {
    const ssize_t count = ::write(file_, whole.data() + written, whole.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail("cannot be written");
    written += static_cast<size_t>(count);
  }
  unsynced_ = true;
  return std::chrono::steady_clock::now() - last_sync_ >= kSyncInterval ? sync() : Status();
}

Status BatchResults::sync() {
  last_sync_ = std::chrono::steady_clock::now();
  if (!std::exchange(unsynced_, false)) return {};
  // Pipes and the like have nothing to sync.
  if (::fdatasync(file_) == 0 || errno == EINVAL || errno == EROFS) return {};
  return fail("cannot be written to the disk");
}

}  // namespace lantern::cli
