#include "device/launch_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "base/check.h"

namespace lantern {
namespace {

// Never destroyed: a CHECK may fail while the process ends.
struct Registry {
  std::mutex mutex;
  std::vector<const LaunchLog*> logs;

  static Registry& get() {
    static Registry& registry = *new Registry;
    return registry;
  }
};

void print_report() {
  const std::string report = recent_launches_report();
  std::fwrite(report.data(), 1, report.size(), stderr);
}

}  // namespace

std::string to_string(const LaunchRecord& record) {
  std::string text = fmt::format("#{} {} ({} bytes of parameters)", record.sequence, record.name, record.params_bytes);
  if (record.mode == LaunchRecord::Mode::kRecorded) text += ", recorded for the " + to_string(record.bucket);
  if (record.mode == LaunchRecord::Mode::kReplayed) text += ", replayed in the " + to_string(record.bucket);
  if (record.running) text += ", running";
  return text;
}

LaunchLog::LaunchLog(std::string stream) : stream_(std::move(stream)) {
  set_fault_reporter(&print_report);
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  registry.logs.push_back(this);
}

LaunchLog::~LaunchLog() {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.logs, this);
}

std::vector<LaunchRecord> LaunchLog::recent() const {
  std::vector<LaunchRecord> records;
  for (uint64_t i = begun_; i > 0 && begun_ - i < kCapacity; --i) {
    records.push_back(records_[(i - 1) % kCapacity]);
    records.back().running = i > ended_;
  }
  return records;
}

std::string LaunchLog::report() const {
  if (begun_ == 0) return {};
  std::string text = fmt::format("lantern: last launches on {}, newest first:\n", stream_);
  for (const LaunchRecord& record : recent()) text += fmt::format("  {}\n", to_string(record));
  return text;
}

std::string recent_launches_report() {
  Registry& registry = Registry::get();
  // A fault may strike the thread that holds the lock; a report is not worth a deadlock.
  const std::unique_lock lock(registry.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  std::string text;
  for (const LaunchLog* log : registry.logs) text += log->report();
  return text;
}

}  // namespace lantern
