#!/usr/bin/env bash
# bundle_test.sh BUILD_DIR VERSION: makes the bundle, moves it to a folder with a space in its name, and runs it there.
set -euo pipefail
build=$1 version=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$(dirname "$(readlink -f "$0")")/../../tools/bundle.sh" "$build" "$folder" "$version"
mkdir "$folder/else where"
mv "$folder/lantern-$version" "$folder/else where/"
bundle="$folder/else where/lantern-$version"
failed=0
# expect WHAT PATTERN COMMAND...: succeeds, and prints it.
expect() {
  local what=$1 pattern=$2 output
  shift 2
  output=$(cd / && env -i "$@" 2>&1) || { printf '%s: exit status %s: %s\n' "$what" $? "$output"; failed=1; return; }
  grep -qE -- "$pattern" <<<"$output" || { printf '%s: no "%s" in: %s\n' "$what" "$pattern" "$output"; failed=1; }
}
# The model is the bundle's. Its words are not compared: in near ties they are the processor's.
expect generate 'finished by (stop|length)' "$bundle/bin/lantern" generate --device cpu --temperature 0 --max-tokens 64 \
  --prompt 'Question: Tom has 12 apples. He buys 3 bags with 5 apples each. How many apples does he have now?'
expect doctor "$version" "$bundle/bin/lantern" doctor
expect serve-help '--port' "$bundle/bin/lantern" serve --help
expect libraries 'libhwy.so.1 => .*else where' /usr/bin/ldd "$bundle/lib/liblantern_attention.so"

# Every library but the C library's own comes from the bundle, also those that libraries ask for.
outside=$(env -i /usr/bin/ldd "$bundle/bin/lantern" | grep '=> /' | grep -vF "$bundle/bin/../lib/" |
  grep -vE '^\s*(libc|libm|ld-linux-x86-64|libpthread|libdl|librt|libresolv)\.so' || true)
[[ -z $outside ]] || { printf 'from outside of the bundle: %s\n' "$outside"; failed=1; }
for file in lantern libstdc++6 libhwy1 libboost-json1.81.0 xgrammar-LICENSE xgrammar-picojson; do
  [[ -s $bundle/licenses/$file ]] || { printf 'licenses/%s is missing\n' "$file"; failed=1; }
done
grep -q '^LANTERN_NVCC:FILEPATH=.*-NOTFOUND' "$build/CMakeCache.txt" || grep -qi 'license' "$bundle/licenses/cuda-runtime" ||
  { printf 'licenses/cuda-runtime says nothing of a licence\n'; failed=1; }
exit $failed
