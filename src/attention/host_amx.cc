#include "attention/host_amx.h"

#include <atomic>

#include "base/amx.h"

namespace lantern {
namespace {

std::atomic<bool> g_forbidden{false};

}  // namespace

const char* missing_host_amx() {
  return g_forbidden.load(std::memory_order_relaxed) ? "a test forbids AMX" : missing_amx();
}

void forbid_amx_for_test(bool forbidden) { g_forbidden.store(forbidden); }

}  // namespace lantern
