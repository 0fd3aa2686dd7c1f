#!/usr/bin/env bash
# gpu_plan_check.sh RESULTS_DIR: runs the step plan on this machine's GPU, from a folder that bench/gpu_bundle.sh made,
# in at most 8 minutes: tests, the examples on torch tensors, compute-sanitizer, benchmarks. RESULTS_DIR gets a log of
# each, plan-gpu.json, plan-eager-torch.json, and summary.txt, whose last line is PASSED or FAILED. What this machine
# cannot do is skipped with a line that says so.
set -uo pipefail
(($# == 1)) || { printf 'usage: gpu_plan_check.sh RESULTS_DIR\n' >&2; exit 2; }
most_seconds=470
source "$(dirname "$(readlink -f "$0")")/gpu_check.sh"
cd "$bundle"
commit=$(<commit)

clocks() { query clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.draw; }
say "device  $(query name), driver $(query driver_version), clocks at start $(clocks)"
say "commit  $commit"

# The names of skipped tests and of devices that were used go into the logs. What reads the source tree is left out.
run plan_tests 120 env LD_LIBRARY_PATH=lib bin/lantern_plan_tests --gtest_filter=-Malformed.EveryFaultHasANameOfItsOwn
run property_tests 60 env LD_LIBRARY_PATH=lib RC_PARAMS=max_success=300 bin/lantern_plan_property_tests
run graph_tests 90 env LD_LIBRARY_PATH=lib bin/lantern_plan_graph_tests
run device_tests 60 env LD_LIBRARY_PATH=lib bin/lantern_device_tests
grep -l "not compared with a GPU" "$results"/*_tests.log >/dev/null && { ((failed += 1)); say "FAILED  the tests saw no GPU"; }
run command 30 env LD_LIBRARY_PATH=lib bin/lantern plan --input cases/mixed_decode.json --device cuda --json
run doctor 30 env LD_LIBRARY_PATH=lib bin/lantern doctor --check-graphs --device cuda

run attention_example 90 python3 examples/attention/attention_example.py --library lib/liblantern_attention.so --device cuda
say "        $(tail -n 1 "$results/attention_example.log")"
run ctypes_example 60 python3 examples/plan/plan_example.py --library lib/liblantern_attention.so
grep -h "skipped" "$results/ctypes_example.log" | while read -r line; do say "skipped $line"; done

# Benchmarks before the sanitizers, while the clocks are up. The clocks are read during the run.
(while sleep 1; do printf '%s %s\n' "$(date +%T)" "$(clocks)"; done) >"$results/clocks.log" 2>&1 &
sampler=$!
run plan_bench 60 env LD_LIBRARY_PATH=lib bash -c \
  'bin/plan_bench --commit "$1" --clocks "$2" >"$3/plan-gpu.json"' _ "$commit" "$(clocks)" "$results"
run eager_torch 60 python3 tools/bench/plan_eager_torch.py --library lib/liblantern_attention.so --commit "$commit" \
  --output "$results/plan-eager-torch.json"
kill "$sampler" 2>/dev/null

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [[ -z $sanitizer ]]; then
  say "skipped compute-sanitizer: it is not installed here"
else
  for tool in memcheck racecheck initcheck synccheck; do
    run "$tool" 60 env LD_LIBRARY_PATH=lib "$sanitizer" --tool "$tool" --error-exitcode 9 \
      bin/lantern_plan_tests --gtest_filter='LargeBatches.AreTheSameEverywhere:LargeBatches.LongPrompts*:Malformed.*:Lengths.*:MlaTiles.*:PagedMqa.*:Drafts.*-Malformed.EveryFaultHasANameOfItsOwn'
    tail -n 1 "$results/$tool.log" | tee -a "$summary"
  done
fi
say "clocks  at end $(clocks)"
finish
