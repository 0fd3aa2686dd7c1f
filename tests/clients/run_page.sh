#!/usr/bin/env bash
# run_page.sh PAGE REQUIREMENTS VENV LANTERN: runs the commands of a page of docs/clients, against a server that is started
# with the flags of the page's line "lantern serve models/tiny ...".
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
page=$1 requirements=$2 venv=$3 lantern=$4
flags=$(sed -n 's/^lantern serve models\/tiny//p' "$page")
for program in $(sed -n 's/^Needs the programs* \(.*\)\.$/\1/p' "$page" | tr -d '`,'); do
  source "$here/python_packages.sh"
  command -v "$program" >/dev/null || skip "there is no $program, which $page needs"
done
SERVE_FLAGS=$flags exec "$here/run_client.sh" page_test.py "$requirements" "$venv" "$lantern" "$here/../../models/tiny" \
  "$page" "$here/$requirements" "$lantern"
