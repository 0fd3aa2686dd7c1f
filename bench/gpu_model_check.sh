#!/usr/bin/env bash
# gpu_model_check.sh RESULTS_DIR: runs the model on this machine's GPU, from a folder that bench/gpu_bundle.sh made, in
# at most 7 minutes, with the checkout as the current folder: every op against the host's, every architecture against
# transformers' outputs, models/tiny's answers and scores beside the CPU's, and compute-sanitizer. RESULTS_DIR gets a log
# of each, and summary.txt, whose last line is PASSED or FAILED. What this machine cannot do is skipped with a line that
# says so.
set -uo pipefail
(($# == 1)) || { printf 'usage: gpu_model_check.sh RESULTS_DIR\n' >&2; exit 2; }
most_seconds=400
source "$(dirname "$(readlink -f "$0")")/gpu_check.sh"
[[ -f models/tiny/config.json ]] || { printf 'gpu_model_check: run it from the checkout, for models/tiny\n' >&2; exit 2; }
export LD_LIBRARY_PATH=$bundle/lib

say "device  $(query name), driver $(query driver_version), clocks at start $(query clocks.sm,clocks.mem,clocks.max.sm)"
say "commit  $(<"$bundle/commit")"
# The tests look for their data where they were built.
source=$(<"$bundle/source")
[[ -e $source ]] || { mkdir -p "$(dirname "$source")" && ln -s "$PWD" "$source"; }

run conformance 120 "$bundle/bin/lantern_conformance_tests"
run golden 120 "$bundle/bin/lantern_golden_tests" --gtest_filter='*_cuda'
for log in conformance golden; do
  grep -q "SKIPPED" "$results/$log.log" && { ((failed += 1)); say "FAILED  $log: tests were skipped"; }
  say "        $(grep -E '^\[  (PASSED|FAILED)' "$results/$log.log" | head -n 1)"
done

question="Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?"
for device in cpu cuda; do
  run "generate_$device" 30 "$bundle/bin/lantern" generate --prompt "$question" --max-tokens 64 --temperature 0 \
    --device $device
  run "score_$device" 30 "$bundle/bin/lantern" score --text "$question" --json --device $device
done
cmp -s <(grep -v tokens/s "$results/generate_cpu.log") <(grep -v tokens/s "$results/generate_cuda.log") ||
  { ((failed += 1)); say "FAILED  generate: the texts of cpu and cuda differ"; }
# evaluate TASK ITEMS CACHE DRAFTS: on the GPU; the share of answers whose text is the CPU's.
evaluate() {
  local name=eval_$1_$3_drafts$4 device
  for device in cpu cuda; do
    run "${name}_$device" 90 "$bundle/bin/lantern" eval "models/tiny/eval/$1.jsonl" --limit "$2" --kv-cache-dtype "$3" \
      --draft-tokens "$4" --device $device --json --output "$results/${name}_$device.jsonl"
  done
  say "        $(tail -n 1 "$results/${name}_cuda.log")"
  local differ
  [[ -s $results/${name}_cpu.jsonl && -s $results/${name}_cuda.jsonl ]] ||
    { ((failed += 1)); say "FAILED  $name: there are no answers to compare"; return; }
  differ=$(diff "$results/${name}_cpu.jsonl" "$results/${name}_cuda.jsonl" | grep -c '^<')
  say "        $((($2 - differ) * 1000 / $2)) of 1000 answers are the CPU's, token by token"
  (((($2 - differ)) * 100 >= $2 * 97)) || { ((failed += 1)); say "FAILED  $name: less than 970"; }
}
evaluate arithmetic 500 bf16 0
evaluate arithmetic 500 fp8 2
evaluate recall 60 bf16 0
evaluate recall 60 fp8 3

# The engine on the GPU: many requests at once as each of them alone, with graphs, drafts, chunks and a prefix cache.
run engine_matrix 150 env LANTERN_TEST_DEVICE=cuda "$bundle/bin/lantern_engine_model_tests" \
  --gtest_filter='EngineMatrix.*:EngineTogether.*:EngineMtp.*:EngineGraphs.*:EngineLogprobs.*'
say "        $(grep -E '^\[  (PASSED|FAILED)' "$results/engine_matrix.log" | head -n 1)"
for drafts in 0 2; do
  run "throughput_$drafts" 60 "$bundle/bin/lantern" bench throughput --model models/tiny --requests 64 \
    --draft-tokens $drafts --device cuda --json
  say "        $(tail -n 1 "$results/throughput_$drafts.log")"
done
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if [[ -z $sanitizer ]]; then
  say "skipped compute-sanitizer: it is not installed here"
else
  for tool in memcheck racecheck initcheck synccheck; do
    run "$tool" 60 "$sanitizer" --tool "$tool" --error-exitcode 9 "$bundle/bin/lantern_conformance_tests" \
      --gtest_filter='*/process_logits:*/draws:*/verify:*/router:*/moe_bf16:*/linear_fp8_f32:*/writes_fp8:*/norms_33:*/attention_small'
    say "        $(tail -n 1 "$results/$tool.log")"
  done
fi
finish
