// The matrix units (AMX) of x86 hosts, as attention uses them: products of floats as sums of products of bf16 pieces.
#pragma once

namespace lantern {

// True when the processor has AMX for bf16 and the AVX-512 instructions beside it, and the system lets this process
// use them. Asked once; the answer does not change.
bool amx_usable();

// For tests: as if the machine had no AMX. Not to be called while kernels run.
void forbid_amx_for_test(bool forbidden);

}  // namespace lantern
