// The last launches of a stream, for whoever has to explain a fault: an illegal access shows up at some later call, and
// what matters is what ran before it. Costs a few stores a launch. Every failed CHECK prints the logs of all streams.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/bucket_key.h"

namespace lantern {

struct LaunchRecord {
  enum class Mode : uint8_t {
    kEager,
    kRecorded,  // into a graph that is being captured; nothing ran
    kReplayed,  // from a graph
  };
  const char* name = "";
  uint64_t sequence = 0;  // 1 for the first launch of the stream
  uint32_t params_bytes = 0;
  Mode mode = Mode::kEager;
  bool running = false;  // not known to have finished
  BucketKey bucket{};    // of the graph; meaningless for eager launches
};

// "#17 plan_step (1360 bytes of parameters), replayed in the decode bucket of 8 tokens, ..., running"
std::string to_string(const LaunchRecord& record);

class LaunchLog {
 public:
  static constexpr size_t kCapacity = 16;

  // `stream` names the stream in reports: its device's description.
  explicit LaunchLog(std::string stream);
  ~LaunchLog();
  LaunchLog(const LaunchLog&) = delete;
  LaunchLog& operator=(const LaunchLog&) = delete;

  // `name` has static lifetime.
  void begin(const char* name, size_t params_bytes) {
    LaunchRecord& record = records_[begun_ % kCapacity];
    record.name = name;
    record.sequence = ++begun_;
    record.params_bytes = static_cast<uint32_t>(params_bytes);
    record.mode = mode_;
    record.bucket = bucket_;
  }
  // Everything begun has finished.
  void end() { ended_ = begun_; }

  // How the launches from now on come about.
  void set_mode(LaunchRecord::Mode mode, const BucketKey& bucket = {}) {
    mode_ = mode;
    bucket_ = bucket;
  }
  uint64_t launches() const { return begun_; }
  const char* last() const { return begun_ == 0 ? "" : records_[(begun_ - 1) % kCapacity].name; }
  // The last kCapacity launches, newest first.
  std::vector<LaunchRecord> recent() const;
  // recent(), a line each, under a line that names the stream; empty when nothing was launched.
  std::string report() const;

 private:
  std::string stream_;
  std::array<LaunchRecord, kCapacity> records_{};
  uint64_t begun_ = 0;
  uint64_t ended_ = 0;
  LaunchRecord::Mode mode_ = LaunchRecord::Mode::kEager;
  BucketKey bucket_{};
};

// The reports of all streams of the process. Meant for the moment of a fault: logs of streams that other threads use
// are read as they are.
std::string recent_launches_report();

}  // namespace lantern
