#include "include_rules.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace lantern {
namespace {

struct Room {
  std::string_view name;
  std::vector<std::string_view> includes;  // beside itself
};

const std::vector<Room> kRooms{
    {"base", {}},
    {"device", {"base"}},
    {"parallel", {"base", "device"}},
    {"ops", {"base", "device", "parallel"}},
    {"attention", {"base", "device", "parallel"}},
    {"text", {"base"}},
    {"model", {"base", "device", "parallel", "ops", "attention"}},
    {"engine", {"base", "device", "parallel", "ops", "attention", "model", "text"}},
    {"server", {"base", "device", "parallel", "ops", "attention", "model", "engine", "text"}},
    {"cli", {"base", "device", "parallel", "ops", "attention", "model", "engine", "server", "text"}},
};

struct ThirdParty {
  std::string_view prefix;               // of the included path
  std::vector<std::string_view> places;  // prefixes of the paths that may include it
  bool internal = true;                  // false: may show in headers that other rooms include
};

const std::vector<ThirdParty> kThirdParties{
    {"fmt/", {"src/"}, false},
    {"spdlog/", {"src/base/log.cc"}},
    {"hwy/", {"src/ops/", "src/attention/"}},
    {"cuda_fp", {"src/device/cuda/convert.cuh"}, false},
    {"boost/json", {"src/base/json_", "src/text/", "src/model/", "src/server/", "src/cli/"}},
    {"boost/asio", {"src/server/http_"}},
    {"boost/beast", {"src/server/http_connection.cc", "src/server/http_client.cc"}},
    {"boost/system", {"src/server/http_"}},
    {"pcre2.h", {"src/text/pcre_pattern.cc", "src/cli/answer_pattern.cc"}},
    {"utf8proc.h", {}},
    {"xgrammar/", {"src/server/grammar_xgrammar.cc"}},
    {"xxhash.h", {"src/engine/block_hash.cc"}},
    {"CLI/", {"src/cli/parse.cc"}},
    {"histedit.h", {"src/cli/line_editor.cc"}},
    {"gtest/", {}},  // tests only
    {"gmock/", {}},
};

// Headers of the system and the compiler that sources and tests' headers (not other headers) may use.
const std::set<std::string_view> kSystemHeaders{
    "cpuid.h",    "fcntl.h",       "fnmatch.h", "immintrin.h", "langinfo.h",     "poll.h",
    "pthread.h",  "sched.h",       "signal.h",  "sys/mman.h",  "sys/ioctl.h",    "sys/socket.h",
    "sys/stat.h", "sys/syscall.h", "time.h",    "termios.h",   "sys/resource.h", "unistd.h"};

struct Include {
  std::string path;
  bool quoted = false;
  int line = 0;
};

std::vector<Include> includes_of(const std::string& text) {
  std::vector<Include> includes;
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const auto skip_blanks = [&](size_t i) { return std::min(line.find_first_not_of(" \t", i), line.size()); };
    size_t i = skip_blanks(0);
    if (i >= line.size() || line[i] != '#') continue;
    i = skip_blanks(i + 1);
    if (line.compare(i, 7, "include") != 0) continue;
    i = skip_blanks(i + 7);
    if (i >= line.size() || (line[i] != '"' && line[i] != '<')) continue;  // a macro: HWY_TARGET_INCLUDE
    const size_t end = line.find(line[i] == '"' ? '"' : '>', i + 1);
    if (end == std::string::npos) continue;
    includes.push_back({line.substr(i + 1, end - i - 1), line[i] == '"', number});
  }
  return includes;
}

bool is_header(std::string_view path) { return path.ends_with(".h") || path.ends_with(".cuh"); }
// "x_test.cc", "weight_test_checkpoint.h"
bool is_test(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.find("_test.") != std::string_view::npos || name.find("_test_") != std::string_view::npos;
}
// "gemm_amx_e4m3.h": built for one instruction set only, so its intrinsics cannot reach other files.
bool is_for_one_isa(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.find("_amx") != std::string_view::npos || name.find("_avx512") != std::string_view::npos;
}
bool is_standard(std::string_view path) {
  return path.find_first_of("./") == std::string_view::npos;  // <vector>, <cstdint>
}

std::string_view first_folder(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

const Room* find_room(std::string_view name) {
  const auto it = std::find_if(kRooms.begin(), kRooms.end(), [&](const Room& room) { return room.name == name; });
  return it == kRooms.end() ? nullptr : &*it;
}

const ThirdParty* find_third_party(std::string_view path) {
  const auto it = std::find_if(kThirdParties.begin(), kThirdParties.end(),
                               [&](const ThirdParty& party) { return path.starts_with(party.prefix); });
  return it == kThirdParties.end() ? nullptr : &*it;
}

// "src/ops/norm.h" -> "ops"; nothing for files outside of src/.
std::string_view room_of(std::string_view path) {
  return path.starts_with("src/") ? first_folder(path.substr(4)) : std::string_view();
}

class Checker {
 public:
  explicit Checker(const SourceTree& tree) : tree_(tree) {
    for (const auto& [path, text] : tree) includes_[path] = includes_of(text);
  }

  std::vector<IncludeViolation> run() {
    for (const auto& [path, includes] : includes_) {
      for (const Include& include : includes) {
        if (const auto reason = path.starts_with("include/") ? check_public(include) : check(path, include)) {
          violations_.push_back({path, include.line, *reason});
        }
      }
    }
    return std::move(violations_);
  }

 private:
  using Reason = std::optional<std::string>;

  static Reason check_public(const Include& include) {
    if (!include.quoted && is_standard(include.path)) return std::nullopt;
    // The C ABI header is C: its standard library has <stdint.h>, <stddef.h>, <stdbool.h>.
    if (!include.quoted && include.path.starts_with("std") && include.path.ends_with(".h")) return std::nullopt;
    if (include.path.starts_with("lantern/")) return std::nullopt;
    return "a public header includes '" + include.path + "'; the standard library and lantern/ are allowed";
  }

  Reason check(const std::string& path, const Include& include) {
    if (const ThirdParty* party = find_third_party(include.path)) return check_third_party(path, include, *party);
    if (include.quoted) return check_room(path, include);
    if (is_standard(include.path)) return std::nullopt;
    if (!kSystemHeaders.contains(include.path)) {
      return "<" + include.path + "> is not known here; a dependency needs an entry in tests/include_direction";
    }
    if (is_test(path) || (include.path == "immintrin.h" && is_for_one_isa(path))) return std::nullopt;
    if (is_header(path)) return "a header includes <" + include.path + ">; system headers belong into sources";
    return std::nullopt;
  }

  static Reason check_third_party(const std::string& path, const Include& include, const ThirdParty& party) {
    const bool test_framework = party.places.empty();
    if (test_framework) {
      if (is_test(path)) return std::nullopt;
      return "'" + include.path + "' is for tests, which have _test in their name";
    }
    // Tests may compare with a dependency within its room, so the same places hold for them.
    if (std::any_of(party.places.begin(), party.places.end(), [&](auto place) { return path.starts_with(place); })) {
      return std::nullopt;
    }
    std::string places;
    for (std::string_view place : party.places) places += (places.empty() ? "" : ", ") + std::string(place);
    return "'" + include.path + "' may be included by " + places + " only";
  }

  Reason check_room(const std::string& path, const Include& include) {
    const std::string target = "src/" + include.path;
    if (include.path.starts_with("lantern/")) {
      return tree_.contains("include/" + include.path) ? std::nullopt : Reason("'" + include.path + "' does not exist");
    }
    if (!tree_.contains(target)) return "'" + include.path + "' is no file of src/; include by the path from src/";
    if (is_test(target) && !is_test(path)) return "'" + include.path + "' belongs to tests, and this is none";
    const Room* own = find_room(room_of(path));
    if (own == nullptr) return "src/" + std::string(room_of(path)) + " is not a room that the rules know";
    const std::string_view other = room_of(target);
    if (other == own->name) return std::nullopt;
    if (std::find(own->includes.begin(), own->includes.end(), other) == own->includes.end()) {
      return std::string(own->name) + " must not include " + std::string(other) + " ('" + include.path + "')";
    }
    if (const auto& party = third_party_behind(target); !party.empty()) {
      return "'" + include.path + "' brings " + party + " into another room";
    }
    return std::nullopt;
  }

  // The first internal third-party header that `path` includes, directly or through others; empty when there is none.
  const std::string& third_party_behind(const std::string& path) {
    const auto [it, is_new] = behind_.try_emplace(path);
    if (!is_new) return it->second;  // known, or in work: a cycle adds nothing
    std::string found;
    for (const Include& include : includes_[path]) {
      const ThirdParty* party = find_third_party(include.path);
      if (party != nullptr && party->internal) {
        found = include.path;
      } else if (include.quoted && tree_.contains("src/" + include.path)) {
        found = third_party_behind("src/" + include.path);
      }
      if (!found.empty()) break;
    }
    return behind_[path] = found;
  }

  const SourceTree& tree_;
  std::map<std::string, std::vector<Include>> includes_;
  std::map<std::string, std::string> behind_;
  std::vector<IncludeViolation> violations_;
};

}  // namespace

SourceTree read_source_tree(const std::string& root) {
  namespace fs = std::filesystem;
  SourceTree tree;
  for (const char* folder : {"src", "include"}) {
    std::error_code error;
    for (fs::recursive_directory_iterator it(fs::path(root) / folder, error), end; !error && it != end;
         it.increment(error)) {
      const std::string extension = it->path().extension().string();
      if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh" && extension != ".inc") {
        continue;
      }
      std::ifstream file(it->path(), std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();
      tree[fs::relative(it->path(), root).generic_string()] = text.str();
    }
  }
  return tree;
}

std::vector<IncludeViolation> find_include_violations(const SourceTree& tree) { return Checker(tree).run(); }

}  // namespace lantern
