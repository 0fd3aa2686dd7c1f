#include "base/amx.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lantern {
namespace {

const char* ask_avx512_bf16() {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return "the CPU has no AVX-512 (F, BW, VL, DQ)";
  }
  if (!__builtin_cpu_supports("avx512bf16")) return "the CPU has no AVX512_BF16";
  if (!__builtin_cpu_supports("avx512vbmi")) return "the CPU has no AVX512_VBMI";
  return nullptr;
}

const char* ask_amx() {
  if (const char* missing = missing_avx512_bf16(); missing != nullptr) return missing;
  unsigned a = 0, b = 0, c = 0, d = 0;
  // Intel SDM volume 2, CPUID leaf 7.
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) {
    return "the CPU has no AMX-BF16";
  }
  // Linux gives tile registers on request only, to the whole process (Documentation/arch/x86/xstate.rst).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    return "the kernel does not let this process use AMX tiles (Linux 5.16 or later is needed)";
  }
  return nullptr;
}

}  // namespace

const char* missing_avx512_bf16() {
  static const char* const kMissing = ask_avx512_bf16();
  return kMissing;
}

const char* missing_amx() {
  static const char* const kMissing = ask_amx();
  return kMissing;
}

}  // namespace lantern
