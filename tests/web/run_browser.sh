#!/usr/bin/env bash
# run_browser.sh VENV LANTERN MODEL: drives the server's page in Chromium. Debian has both packages that it takes; where
# they are not installed the test says so and counts as skipped.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
source "$here/../clients/python_packages.sh"
for program in chromium chromedriver; do
  command -v "$program" >/dev/null || skip "there is no $program (apt-get install chromium chromium-driver)"
done
install_python_packages "$here/requirements.txt" "$1"
exec "$1/env/bin/python" "$here/page_test.py" "$2" "$3"
