// Which matrix instructions of x86 processors this process can use, and its right to the matrix units (AMX). Apart from
// the kernels' files, which are built with those instructions and must not run before the answer is known.
#pragma once

namespace lantern {

// Why this machine cannot run AVX512_BF16 with AVX-512 F, BW, VL and DQ; null: it can. Asked once.
const char* missing_avx512_bf16();
// The same of AMX for bf16 beside those. The first call asks the system for the tile registers, for the whole process.
const char* missing_amx();

}  // namespace lantern
