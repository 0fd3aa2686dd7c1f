#!/usr/bin/env bash
# run_client.sh SCRIPT REQUIREMENTS VENV LANTERN MODEL [ARGUMENT...]: starts the server on a free port, with $SERVE_FLAGS,
# and runs the script with its URL and the arguments. REQUIREMENTS "none": the script needs no packages.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
script=$1 requirements=$2 venv=$3 lantern=$4 model=$5
shift 5

source "$here/python_packages.sh"
python=python3
if [[ $requirements != none ]]; then
  python=$venv/env/bin/python
  install_python_packages "$here/$requirements" "$venv"
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
