#include "process_state.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lantern::test {
namespace {

int64_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

}  // namespace

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}
int64_t open_descriptors() { return entries("/proc/self/fd"); }
int64_t running_threads() { return entries("/proc/self/task"); }

}  // namespace lantern::test
