// Whether attention uses the matrix units (AMX) of x86 hosts: products of floats as sums of products of bf16 pieces.
#pragma once

namespace lantern {

// Why not, null where it does: as missing_amx() of base/amx.h says, unless a test forbids it.
const char* missing_host_amx();

// For tests: as if the machine had no AMX. Not to be called while kernels run.
void forbid_amx_for_test(bool forbidden);

}  // namespace lantern
