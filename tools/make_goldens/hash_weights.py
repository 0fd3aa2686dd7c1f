"""Weights from a counter-based integer hash; tests/golden/hash_weights.cc is the same function in C++.

A tensor is one entry of a case's tensors.json. Element i of the tensor (row-major) depends on the case's salt, the
tensor's name and i alone:
  seed = FNV-1a 64 of "<salt>/<name>" (name is `same_as` where given), x = splitmix64_finaliser(seed + (i+1)*gamma)
  kind uniform: u = (x >> 40) * 2^-24; float32(offset + scale * (2u - 1)), then rounded to nearest even to dtype
  kind e4m3:    the byte sign = bit 63, exponent field = bits 60..62 (0..7, so |value| < 2), mantissa = bits 57..59
  kind pow2:    float32 2^(offset + (x >> 40) % scale), offset and scale being integers
scale and offset of a uniform tensor are float32 values, so that offset + scale * (2u - 1) rounds only once in float64,
fused or not.
"""

import math

import numpy as np
import torch

GAMMA = 0x9E3779B97F4A7C15
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F8_E4M3": torch.float8_e4m3fn}


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def hash_words(seed_text, count):
    with np.errstate(over="ignore"):
        x = np.uint64(fnv1a64(seed_text)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def stored_tensor(entry, salt):
    """The tensor as the checkpoint holds it (torch, dtype of the entry)."""
    count = math.prod(entry["shape"])
    x = hash_words(f"{salt}/{entry.get('same_as', entry['name'])}", count)
    kind = entry.get("kind", "uniform")
    if kind == "e4m3":
        sign, exponent, mantissa = (
            x >> np.uint64(63),
            (x >> np.uint64(60)) & np.uint64(7),
            (x >> np.uint64(57)) & np.uint64(7),
        )
        codes = ((sign << np.uint64(7)) | (exponent << np.uint64(3)) | mantissa).astype(np.uint8)
        return torch.from_numpy(codes).view(torch.float8_e4m3fn).reshape(entry["shape"])
    top = x >> np.uint64(40)
    if kind == "pow2":
        values = np.ldexp(np.float32(1), int(entry["offset"]) + (top % np.uint64(entry["scale"])).astype(np.int64))
    else:
        unit = (2.0 * top.astype(np.float64) - 2.0**24) * 2.0**-24
        values = np.float64(np.float32(entry["offset"])) + np.float64(np.float32(entry["scale"])) * unit
    return torch.from_numpy(values.astype(np.float32)).to(DTYPES[entry["dtype"]]).reshape(entry["shape"])


def dequantised_weights(manifest):
    """{name: float32 tensor} with every `weight_scale_inv` multiplied into its weight (128 x 128 blocks)."""
    stored = {entry["name"]: stored_tensor(entry, manifest["salt"]) for entry in manifest["tensors"]}
    result = {}
    for name, tensor in stored.items():
        if name.endswith("_scale_inv"):
            continue
        tensor = tensor.to(torch.float32)
        scales = stored.get(name + "_scale_inv")
        if scales is not None:
            rows, cols = tensor.shape
            full = scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
            tensor = tensor * full
        result[name] = tensor
    return result
