#include "server/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace lantern {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The fields of /proc/self/stat from the third on, as proc(5) numbers them: the second, a name, may hold anything.
class Stat {
 public:
  Stat() {
    const std::string line = first_line("/proc/self/stat");
    const size_t name_end = line.rfind(')');
    if (name_end == std::string::npos) return;
    std::istringstream rest(line.substr(name_end + 1));
    fields_.assign(std::istream_iterator<std::string>(rest), {});
  }
  std::optional<double> field(size_t number) const {
    if (number < 3 || number - 3 >= fields_.size()) return std::nullopt;
    return std::stod(fields_[number - 3]);
  }

 private:
  std::vector<std::string> fields_;
};

// When the system was started, in seconds since 1970.
std::optional<double> boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  }
  return std::nullopt;
}

std::optional<double> open_descriptors() {
  std::error_code error;
  double count = -1;  // the one that reads the folder
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error))
    ++count;
  if (error) return std::nullopt;
  return count;
}

std::optional<double> most_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(limit.rlim_cur);
}

}  // namespace

void write_process_metrics(MetricsText& text) {
  const auto write = [&](const char* name, const char* type, const char* help, std::optional<double> value) {
    if (!value) return;
    text.family(name, type, help);
    text.sample(*value);
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const Stat stat;
  const std::optional<double> user = stat.field(14), system = stat.field(15), started = stat.field(22),
                              address_space = stat.field(23), pages = stat.field(24), booted = boot_time();
  write("process_cpu_seconds_total", "counter", "Processor time of all threads, in user and system mode.",
        user && system ? std::optional((*user + *system) / ticks) : std::nullopt);
  write("process_start_time_seconds", "gauge", "When the process was started, in seconds since 1970.",
        started && booted ? std::optional(*booted + *started / ticks) : std::nullopt);
  write("process_resident_memory_bytes", "gauge", "Memory that the process holds.",
        pages ? std::optional(*pages * static_cast<double>(sysconf(_SC_PAGESIZE))) : std::nullopt);
  write("process_virtual_memory_bytes", "gauge", "Address space that the process has.", address_space);
  write("process_open_fds", "gauge", "Open descriptors: files and connections.", open_descriptors());
  write("process_max_fds", "gauge", "Descriptors that the process may have open.", most_descriptors());
}

}  // namespace lantern
