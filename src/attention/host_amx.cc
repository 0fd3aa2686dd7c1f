#include "attention/host_amx.h"

#include <atomic>

#include "base/amx.h"

namespace lantern {
namespace {

std::atomic<bool> g_forbidden{false};

}  // namespace

bool amx_usable() { return missing_amx() == nullptr && !g_forbidden.load(std::memory_order_relaxed); }

void forbid_amx_for_test(bool forbidden) { g_forbidden.store(forbidden); }

}  // namespace lantern
