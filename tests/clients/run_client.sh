#!/usr/bin/env bash
# run_client.sh SCRIPT VENV LANTERN MODEL [ARGUMENT...]: starts the server on a free port, with $SERVE_FLAGS, and runs the
# script with its URL and the arguments. VENV "none": the script needs no packages.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
script=$1 venv=$2 lantern=$3 model=$4
shift 4

source "$here/python_packages.sh"
python=python3
if [[ $venv != none ]]; then
  python=$venv/env/bin/python
  install_python_packages "$here/requirements.txt" "$venv"
fi

output=$(mktemp)
"$lantern" serve "$model" --port 0 --kv-cache-memory 64Mi --threads 1 ${SERVE_FLAGS-} >"$output" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$output"' EXIT
for ((i = 0; i < 600; ++i)); do
  url=$(sed -n 's/^listens on *\(http[^ ,]*\).*/\1/p' "$output")
  [[ $url ]] && break
  kill -0 "$server" || exit 1
  sleep 0.1
done
"$python" "$here/$script" "$url" "$@"
