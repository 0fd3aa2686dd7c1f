# Sourced by ./run and ./test: what to install on Debian 12, and how to configure and build. Bash; no other tool assumed.

build_packages=(
  g++ cmake ninja-build pkg-config ccache mold
  libfmt-dev libspdlog-dev libboost1.81-dev libboost-json1.81-dev libcli11-dev
  libhwy-dev libpcre2-dev libxxhash-dev libedit-dev libgtest-dev python3-pip
)
# oneDNN is what bench/ compares with; nothing else links it. Its CMake files need OpenCL's, which it only recommends.
test_packages=(git clang-format-19 clang-tidy-19 libdnnl-dev ocl-icd-opencl-dev librapidcheck-dev libutf8proc-dev)
# For ./test --full: libFuzzer is clang's.
fuzz_packages=(clang-19 libclang-rt-19-dev)

# Large, and only the page's test is skipped without it.
browser_packages=(chromium chromium-driver)

say() { printf 'lantern: %s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# install_missing PACKAGE...: nothing to do costs one dpkg-query.
install_missing() {
  command -v dpkg-query >/dev/null || die "this script installs packages with apt, which this system does not have;" \
    "install the libraries named in docs/dependencies.md, then: cmake --preset release && cmake --build --preset release"
  local installed package missing=()
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null) || true
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$installed" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || die "packages are missing and only root can install them: sudo apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! apt-get update -qq >"$log" 2>&1 ||
    ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -f "$log"
    die "apt could not install ${missing[*]} (Debian 12 has them all; is this system offline or another release?)"
  fi
  rm -f "$log"
  packages_changed=1
}
packages_changed=

install_browser() {
  (install_missing "${browser_packages[@]}") || say "without a browser the page's test is skipped"
}

# The source package of xgrammar, for structured output (docs/dependencies.md). Its C++ core alone is unpacked; cmake
# finds it there. Where it cannot be fetched the build goes on, and such requests are refused.
xgrammar_version=0.2.8
xgrammar_sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
ensure_xgrammar() {
  local name=xgrammar-$xgrammar_version to=build/third_party temporary
  [[ -e $to/$name/cpp/grammar_matcher.cc || -e $to/.no-xgrammar ]] && return 0
  mkdir -p "$to"
  temporary=$(mktemp -d "$to/fetch.XXXXXX")
  say "fetching $name"
  # pip checks the hash before it looks into the package.
  printf 'xgrammar==%s --hash=sha256:%s\n' "$xgrammar_version" "$xgrammar_sha256" >"$temporary/requirements.txt"
  if (cd "$temporary" && python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary xgrammar \
    --require-hashes -r requirements.txt) >"$temporary/log" 2>&1 &&
    printf '%s  %s\n' "$xgrammar_sha256" "$temporary/$name.tar.gz" | sha256sum --status -c &&
    tar -xzf "$temporary/$name.tar.gz" -C "$temporary" "$name"/{LICENSE,NOTICE,cpp,include,3rdparty/dlpack,3rdparty/picojson}; then
    mv "$temporary/$name" "$to/$name"
  else
    tail -n 5 "$temporary/log" >&2
    say "$name could not be fetched: this build has no structured output; remove $to/.no-xgrammar to try again"
    touch "$to/.no-xgrammar"
  fi
  rm -rf "$temporary"
}

# Debian's package of Prometheus, unpacked and not installed: its service would start on this machine. The tests that need
# it find it by their PATH, and are skipped where it could not be had.
prometheus_version=2.42.0+ds-5+deb12u1
ensure_prometheus() {
  local to=build/third_party/prometheus-$prometheus_version temporary
  [[ -x $to/prometheus ]] && return 0
  mkdir -p build/third_party
  temporary=$(mktemp -d build/third_party/fetch.XXXXXX)
  say "fetching prometheus $prometheus_version"
  # apt checks what it fetches against the release that Debian has signed.
  if (cd "$temporary" && apt-get download -q "prometheus=$prometheus_version" &&
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/prometheus ./usr/bin/promtool) \
    >"$temporary/log" 2>&1; then
    rm "$temporary"/prometheus_*.deb "$temporary/log"
    chmod 755 "$temporary"
    mv "$temporary" "$to"
  else
    tail -n 5 "$temporary/log" >&2
    say "prometheus $prometheus_version could not be fetched: its tests are skipped"
    rm -rf "$temporary"
  fi
}

jobs_for_build() { nproc; }

# Turns ninja's lines into one moving line on a terminal, a line every 10 % elsewhere, and silence when there is nothing
# to do. What a failed step prints is passed on whole.
show_build_progress() {
  local line percent shown=-10 moved=
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*) ]]; then
      [[ ${BASH_REMATCH[3]} == Re-checking* || ${BASH_REMATCH[3]} == Re-running* ]] && continue
      percent=$((BASH_REMATCH[1] * 100 / BASH_REMATCH[2]))
      if [[ -t 2 ]]; then
        printf '\r\033[K%3d %% %.100s' "$percent" "${BASH_REMATCH[3]}" >&2
        moved=1
      elif ((percent >= shown + 10)); then
        shown=$percent
        printf 'lantern: building %d %%\n' "$percent" >&2
      fi
    elif [[ $line != "ninja: no work to do." && $line != "ninja: Entering directory"* && $line != "-- "* ]]; then
      [[ $moved ]] && printf '\n' >&2
      moved=
      printf '%s\n' "$line" >&2
    fi
  done
  [[ $moved ]] && printf '\r\033[K' >&2
  return 0
}

# build PRESET [TARGET...]: configures once, then builds; one build per checkout at a time.
build() {
  local preset=$1 status=0
  shift
  mkdir -p "build/$preset"
  exec {build_lock}>"build/$preset/.lock"
  flock "$build_lock"
  if [[ $packages_changed || ! -e build/$preset/build.ninja ]]; then
    say "configuring build/$preset"
    cmake --preset "$preset" >"build/$preset/configure.log" 2>&1 || {
      cat "build/$preset/configure.log" >&2
      rm -f "build/$preset/build.ninja"
      die "cmake could not configure preset $preset"
    }
  fi
  # The status line is ours to parse, whatever the caller's NINJA_STATUS says.
  NINJA_STATUS='[%f/%t] ' ninja -C "build/$preset" -j "$(jobs_for_build)" "$@" 2>&1 {build_lock}>&- |
    show_build_progress || status=$?
  exec {build_lock}>&-
  return "$status"
}

# The FP8-block version of the shipped model is made, not committed.
ensure_tiny_fp8() {
  local from=models/tiny to=build/models/tiny-fp8
  [[ -e $to/config.json && -z $(find "$from" -newer "$to/config.json" -type f -print -quit) ]] && return 0
  say "making $to from $from"
  rm -rf "$to"
  build/release/lantern quantize --model "$from" --output "$to" >/dev/null
}
