#include "base/amx.h"
#include "ops/gemm_kernel.h"

namespace lantern {

const char* missing_amx_bf16() {
  if (const char* missing = missing_amx(); missing != nullptr) return missing;
  if (!__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("gfni")) {
    return "the CPU has no AVX512_VBMI and GFNI, which widen FP8 weights";
  }
  return nullptr;
}

}  // namespace lantern
