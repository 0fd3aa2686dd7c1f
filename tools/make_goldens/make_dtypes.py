"""Writes tests/golden/data/dtypes.json: tables and rounding cases for every small float type Lantern reads.

Two independent implementations (torch and ml_dtypes) make every number; the script stops where they disagree.
Everything in the file is a decimal integer holding the bits of the value, so that NaN and -0.0 survive JSON:
  "e4m3fn", "e5m2", "e8m0", "e2m1"   list: index = byte (e2m1: nibble), value = float32 bits (canonical NaN 0x7fc00000)
  "f16_to_f32"                       pairs [f16 bits, float32 bits]
  "f32_to_bf16", "f32_to_f16"        pairs [float32 bits, target's bits], round to nearest even; NaN inputs give any NaN
  "f32_to_e4m3fn_sat", "..e5m2_sat"  the same, but finite overflow and infinities become the largest finite value
Pairs are of positive inputs: the script checks that the negative ones give the same bits with the sign bit set.
"""

import argparse
import json
import pathlib

import ml_dtypes
import numpy as np
import torch

CANONICAL_NAN = 0x7FC00000
MAX_FINITE = {"e4m3fn": 448.0, "e5m2": 57344.0}
TORCH = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e8m0": torch.float8_e8m0fnu,
}
NUMPY = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e8m0": ml_dtypes.float8_e8m0fnu,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


def float_bits(values):
    values = np.asarray(values, dtype=np.float32)
    return np.where(np.isnan(values), np.uint32(CANONICAL_NAN), values.view(np.uint32))


def byte_table(name):
    codes = np.arange(16 if name == "e2m1" else 256, dtype=np.uint8)
    table = float_bits(codes.view(NUMPY[name]).astype(np.float32))
    if name in TORCH:
        other = float_bits(torch.from_numpy(codes.copy()).view(TORCH[name]).to(torch.float32).numpy())
        assert (table == other).all(), name
    else:  # E2M1, written out from the OCP microscaling specification
        magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
        assert (table == float_bits(np.concatenate([magnitudes, -magnitudes]))).all()
    return [int(x) for x in table]


def rounding_inputs(target):
    """float32 inputs around every interesting edge of `target`: exact, half-way, one ulp either side of half-way."""
    integer = np.uint8 if target in MAX_FINITE else np.uint16
    count = 1 << (8 * np.dtype(integer).itemsize)
    codes = np.arange(count).astype(integer)
    exact = codes.view(NUMPY[target]).astype(np.float32)
    positive = np.unique(exact[np.isfinite(exact) & (exact >= 0)])
    if len(positive) > 300:  # 16-bit types: both ends of the range, and a seeded sample between
        rng = np.random.default_rng(20)
        middle = np.sort(rng.choice(len(positive) - 80, 160, replace=False)) + 40
        keep = np.unique(np.concatenate([np.arange(40), middle, np.arange(len(positive) - 40, len(positive))]))
    else:
        keep = np.arange(len(positive))
    low = positive[keep]
    high = positive[np.minimum(keep + 1, len(positive) - 1)]
    half = (low.astype(np.float64) * 0.5 + high.astype(np.float64) * 0.5).astype(np.float32)
    top = positive[-1]
    step = np.float64(top) - np.float64(positive[-2])
    with np.errstate(over="ignore"):
        beyond = np.array([top + step * f for f in (0.25, 0.5, 0.75, 1.0, 2.0)], dtype=np.float64).astype(np.float32)
        edges = np.concatenate(
            [
                low,
                half,
                np.nextafter(half, np.float32(0)),
                np.nextafter(half, np.float32(np.inf)),
                beyond,
                np.nextafter(beyond, np.float32(0)),
            ]
        )
    specials = np.array([0.0, np.inf, 3.4028235e38, 1.1754944e-38, 1.4e-45], dtype=np.float32)
    bits = np.unique(np.concatenate([edges, specials]).view(np.uint32))
    return np.concatenate([bits, np.array([0x7FC00000, 0x7F800001, 0x7FFFFFFF], dtype=np.uint32)])


def converted(bits, target):
    """The bits of `target` nearest to the float32 values with these bits, by both packages. Byte formats saturate."""
    values = bits.view(np.float32)
    nan = np.isnan(values)
    if target in MAX_FINITE:
        with np.errstate(invalid="ignore"):
            values = np.clip(values, -MAX_FINITE[target], MAX_FINITE[target])
    integer = np.uint8 if target in MAX_FINITE else np.uint16
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(NUMPY[target]).view(integer)
    other = torch.from_numpy(values.copy()).to(TORCH[target])
    other = other.view(torch.uint8 if integer is np.uint8 else torch.int16).numpy().view(integer)
    differ = (out != other) & ~nan
    assert not differ.any(), (
        target,
        [(hex(b), hex(x), hex(y)) for b, x, y in zip(bits[differ], out[differ], other[differ])],
    )
    return out


def conversions(target):
    bits = rounding_inputs(target)
    out, negative = converted(bits, target), converted(bits | np.uint32(1 << 31), target)
    sign = out.dtype.type(1 << (8 * out.dtype.itemsize - 1))
    assert ((negative == out | sign) | np.isnan(bits.view(np.float32))).all(), target
    return [[int(b), int(o)] for b, o in zip(bits, out)]


def f16_to_f32():
    rng = np.random.default_rng(21)
    edges = [0, 1, 2, 0x3FF, 0x400, 0x401, 0x3C00, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF]
    codes = np.unique(np.concatenate([edges, np.array(edges) | 0x8000, rng.integers(0, 65536, 64)])).astype(np.uint16)
    return [[int(c), int(b)] for c, b in zip(codes, float_bits(codes.view(np.float16).astype(np.float32)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path(__file__).resolve().parents[2] / "tests/golden/data/dtypes.json",
    )
    args = parser.parse_args()
    result = {
        "made_by": f"tools/make_goldens/make_dtypes.py, torch {torch.__version__}, ml_dtypes {ml_dtypes.__version__}"
    }
    for name in ("e4m3fn", "e5m2", "e8m0", "e2m1"):
        result[name] = byte_table(name)
    result["f16_to_f32"] = f16_to_f32()
    for target in ("bf16", "f16", "e4m3fn", "e5m2"):
        result[f"f32_to_{target}{'_sat' if target in MAX_FINITE else ''}"] = conversions(target)
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in result.items()]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(args.out, args.out.stat().st_size, {k: len(v) for k, v in result.items() if isinstance(v, list)})


if __name__ == "__main__":
    main()
