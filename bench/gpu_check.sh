# What gpu_plan_check.sh and gpu_model_check.sh share; each sources it with the folder of the results as its first
# argument and most_seconds set, the time of the whole script. Sets bundle, results and summary; the machine has a GPU
# afterwards.
mkdir -p "$1"
results=$(readlink -f "$1")
bundle=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
[[ -d $bundle/bin ]] || { printf '%s: %s holds no bin/; run the copy that bench/gpu_bundle.sh made\n' \
  "$(basename "$0" .sh)" "$bundle" >&2; exit 2; }
summary=$results/summary.txt
failed=0
: >"$summary"

say() { printf '%s\n' "$*" | tee -a "$summary"; }
# run NAME SECONDS COMMAND...: the log keeps everything. Nothing goes on beyond the whole script's time.
run() {
  local name=$1 seconds=$2 start=$SECONDS status=0 left=$((most_seconds - SECONDS))
  shift 2
  ((left > 5)) || { ((failed += 1)); say "FAILED  $name: no time is left for it"; return; }
  ((seconds < left)) || seconds=$left
  timeout "$seconds" "$@" >"$results/$name.log" 2>&1 || status=$?
  if ((status == 0)); then
    say "ok      $name ($((SECONDS - start)) s)"
  else
    ((failed += 1))
    say "FAILED  $name (status $status after $((SECONDS - start)) s): $(tail -n 3 "$results/$name.log" | tr '\n' ' ')"
  fi
}
query() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }
finish() { if ((failed == 0)); then say PASSED; else say "FAILED ($failed)"; exit 1; fi; }

if ! nvidia-smi >"$results/nvidia-smi.log" 2>&1; then
  say "FAILED  this machine has no GPU that nvidia-smi sees"
  exit 1
fi
