# Sourced: packages of PyPI for tests, in a virtual environment of the build folder.

skip() {
  printf 'skipped: %s\n' "$1" >&2
  exit 77
}

# install_python_packages REQUIREMENTS VENV: into VENV/env, once for each state of the file; one at a time.
install_python_packages() {
  local requirements=$1 venv=$2 lock
  mkdir -p "$venv"
  exec {lock}>"$venv/.lock"
  flock "$lock"
  if ! cmp -s "$requirements" "$venv/installed.txt"; then
    python3 -m venv "$venv/env" || skip "python3 cannot make a virtual environment (apt-get install python3-venv)"
    "$venv/env/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" ||
      skip "pip cannot install what $requirements names"
    cp "$requirements" "$venv/installed.txt"
  fi
  exec {lock}>&-
}
