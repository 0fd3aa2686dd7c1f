#include "base/amx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace lantern {
namespace {

// The kernel's list of what the first processor has.
std::vector<std::string> processor_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(Amx, TheAnswersAgreeWithTheKernelsList) {
  const std::vector<std::string> flags = processor_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags here";
  const auto has_all = [&](std::vector<std::string_view> names) {
    return std::all_of(names.begin(), names.end(),
                       [&](auto name) { return std::find(flags.begin(), flags.end(), name) != flags.end(); });
  };
  const bool avx512 = has_all({"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512vbmi"});
  EXPECT_EQ(missing_avx512_bf16() == nullptr, avx512);
  const bool amx = avx512 && has_all({"amx_bf16", "amx_tile"});
  if (missing_amx() == nullptr || std::string_view(missing_amx()).starts_with("the CPU")) {
    EXPECT_EQ(missing_amx() == nullptr, amx) << (amx ? "the processor has it" : "the processor lacks it");
  } else {
    EXPECT_TRUE(amx) << missing_amx();  // the kernel refuses what the processor has
  }
}

}  // namespace
}  // namespace lantern
