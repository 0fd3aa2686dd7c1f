#!/usr/bin/env bash
# bench/gpu_bundle.sh OUT_DIR [BUILD_DIR]: collects what bench/gpu_plan_check.sh and bench/gpu_model_check.sh need on a
# machine with a GPU that has neither the libraries nor the time to build it: the tests, the benchmark, the shared library
# and the libraries under them, stripped, in OUT_DIR and OUT_DIR.tar.xz. BUILD_DIR is build/release by default, built with nvcc.
set -euo pipefail
(($# >= 1)) || { printf 'usage: bench/gpu_bundle.sh OUT_DIR [BUILD_DIR]\n' >&2; exit 2; }
mkdir -p "$1"
out=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "$0")")/.."
build=${2-build/release}
source tools/collect_libraries.sh
most_mib=32

programs=(tests/plan/lantern_plan_tests tests/plan/lantern_plan_property_tests
  tests/plan_graphs/lantern_plan_graph_tests lantern_device_tests bench/plan_bench lantern
  tests/conformance/lantern_conformance_tests tests/golden/lantern_golden_tests
  tests/engine/lantern_engine_model_tests)
for program in "${programs[@]}" liblantern_attention.so; do
  [[ -e $build/$program ]] || { printf 'gpu_bundle: %s is not there; build first: cmake --build %s\n' \
    "$build/$program" "$build" >&2; exit 1; }
done

rm -rf "${out:?}"/{bin,lib,examples,tools,cases,gpu_check.sh,gpu_plan_check.sh,gpu_model_check.sh,commit,source}
mkdir -p "$out"/{bin,lib,cases}
for program in "${programs[@]}"; do
  cp "$build/$program" "$out/bin/"
done
collect_libraries "$out/lib" "$out"/bin/* "$build/liblantern_attention.so"
cp -L "$build/liblantern_attention.so" "$out/lib/"
strip "$out"/bin/*
strip --strip-unneeded "$out/lib/liblantern_attention.so"
mkdir -p "$out/examples" "$out/tools"
cp -r examples/plan examples/attention "$out/examples/"
cp -r tools/bench "$out/tools/"
rm -rf "$out"/examples/*/__pycache__ "$out"/tools/bench/__pycache__
cp tests/plan/cases/*.json "$out/cases/"
cp bench/gpu_{check,plan_check,model_check}.sh "$out/"
pwd >"$out/source"
commit=$(git rev-parse HEAD)
[[ -z $(git status --porcelain -uno -- src include cmake CMakeLists.txt) ]] || commit+=" with changes"
printf '%s\n' "$commit" >"$out/commit"

archive=$out.tar.xz
tar -C "$(dirname "$out")" -cf - "$(basename "$out")" | xz -T0 -6 >"$archive"
size=$(du -sm "$archive" | cut -f1)
printf 'gpu_bundle: %s MiB in %s, commit %s\n' "$size" "$archive" "$commit"
((size <= most_mib)) || { printf 'gpu_bundle: more than %s MiB\n' "$most_mib" >&2; exit 1; }
