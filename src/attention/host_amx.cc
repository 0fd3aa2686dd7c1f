#include "attention/host_amx.h"

#if defined(__x86_64__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include <cpuid.h>

namespace lantern {
namespace {

std::atomic<bool> g_forbidden{false};

bool detect() {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512bf16")) {
    return false;
  }
  unsigned a = 0, b = 0, c = 0, d = 0;
  // Intel SDM volume 2, CPUID leaf 7: EDX bit 22 is AMX-BF16, bit 24 AMX-TILE.
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d >> 22 & 1u) == 0 || (d >> 24 & 1u) == 0) return false;
  // Linux gives the tile registers to a process that asks: ARCH_REQ_XCOMP_PERM for XFEATURE_XTILE_DATA.
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool amx_usable() {
  static const bool usable = detect();
  return usable && !g_forbidden.load(std::memory_order_relaxed);
}

void forbid_amx_for_test(bool forbidden) { g_forbidden.store(forbidden); }

}  // namespace lantern

#else

namespace lantern {

bool amx_usable() { return false; }
void forbid_amx_for_test(bool) {}

}  // namespace lantern

#endif
