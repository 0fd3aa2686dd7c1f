#!/usr/bin/env bash
# tools/bundle.sh BUILD_DIR OUT_DIR VERSION [--archive]: makes OUT_DIR/lantern-VERSION, a folder that runs from anywhere on
# x86-64 Linux (docs/bundle.md), and with --archive OUT_DIR/lantern-VERSION-x86_64.tar.xz of it. The targets `lantern`
# and `lantern_attention_shared` of BUILD_DIR are built.
set -euo pipefail
(($# >= 3)) || { printf 'usage: tools/bundle.sh BUILD_DIR OUT_DIR VERSION [--archive]\n' >&2; exit 2; }
build=$(readlink -f "$1")
mkdir -p "$2"
out=$(readlink -f "$2")/lantern-$3
archive=$out-x86_64.tar.xz
cd "$(dirname "$(readlink -f "$0")")/.."
source tools/collect_libraries.sh
most_mb=40
most_glibc=2.36  # Debian 12's
die() { printf 'bundle: %s\n' "$*" >&2; exit 1; }

rm -rf "$out"
mkdir -p "$out"/{bin,lib,include/lantern,models,examples,licenses}
cp "$build/lantern" "$out/bin/"
cp -L "$build/liblantern_attention.so.1" "$out/lib/"
ln -s liblantern_attention.so.1 "$out/lib/liblantern_attention.so"
collect_libraries "$out/lib" "$out/bin/lantern" "$build/liblantern_attention.so.1"
strip "$out/bin/lantern"
strip --strip-unneeded "$out/lib/liblantern_attention.so.1"
cp include/lantern/{attention,plan,status}.h "$out/include/lantern/"
cp -r models/tiny "$out/models/"
cp -r examples/plan examples/attention "$out/examples/"
rm -rf "$out"/examples/*/__pycache__
cp docs/bundle.md "$out/README.md"

# Licences: ours, of each library beside the program, and of what is compiled in.
cp LICENSE "$out/licenses/lantern"
licence_of() { cp -L "/usr/share/doc/$1/copyright" "$out/licenses/$1" || die "package $1 has no copyright file"; }
for library in "$out"/lib/*.so.*; do
  name=$(basename "$library")
  [[ $name == liblantern_* ]] && continue
  # A package may know the file by another path of the same folder.
  package=$(dpkg -S "*/$(basename "$(readlink -f "$(ldd "$build/lantern" | awk -v n="$name" '$1 == n {print $3}')")")" |
    grep -E '/x86_64-linux-gnu/' | head -n 1 | cut -d: -f1) || die "no package has $name"
  licence_of "$package"
done
for package in libcli11-dev libxxhash-dev; do licence_of "$package"; done
xgrammar=$(sed -n 's/^LANTERN_XGRAMMAR_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
[[ -f $xgrammar/LICENSE ]] || die "xgrammar is not in '$xgrammar': the program has no structured output; ./run fetches it"
for file in LICENSE NOTICE 3rdparty/dlpack/LICENSE; do
  cp "$xgrammar/$file" "$out/licenses/xgrammar-$(tr / - <<<"$file")"
done
sed -n '1,/\*\//p' "$xgrammar/3rdparty/picojson/picojson.h" >"$out/licenses/xgrammar-picojson"
nvcc=$(sed -n 's/^LANTERN_NVCC:FILEPATH=//p' "$build/CMakeCache.txt")
if [[ $nvcc != *NOTFOUND ]]; then
  # nvcc may be a script that calls the toolkit's: it is asked where that lies. Debian's package has its own place.
  cuda=$("$nvcc" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ _HERE_=\(.*\)\/bin$/\1/p')
  cat "$cuda"/EULA.txt "$cuda"/dist-info/nvidia_cuda_runtime-*/licenses/License.txt /usr/share/doc/nvidia-cuda-dev/copyright \
    >"$out/licenses/cuda-runtime" 2>/dev/null || true
  if [[ ! -s $out/licenses/cuda-runtime ]]; then
    printf 'bundle: no text of the CUDA licence in %s: licenses/cuda-runtime says where it stands\n' "$cuda" >&2
    printf 'The program contains the NVIDIA CUDA runtime library, under the CUDA Toolkit End User License Agreement:\n%s\n' \
      'https://docs.nvidia.com/cuda/eula/' >"$out/licenses/cuda-runtime"
  fi
fi

glibc=$(objdump -T "$out"/bin/lantern "$out"/lib/*.so.* | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
glibc=${glibc#GLIBC_}
[[ $(printf '%s\n' "$glibc" "$most_glibc" | sort -V | tail -n 1) == "$most_glibc" ]] ||
  die "needs glibc $glibc, more than $most_glibc: build it on Debian 12"
printf 'bundle: %s: %s MB, needs glibc %s\n' "$out" "$(($(du -sb "$out" | cut -f1) / 1000000))" "$glibc"
[[ ${4-} == --archive ]] || exit 0
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$(dirname "$out")" -cf - "$(basename "$out")" |
  xz -T0 -6 >"$archive"
bytes=$(stat -c %s "$archive")
printf 'bundle: %s: %s.%s MB\n' "$archive" "$((bytes / 1000000))" "$((bytes / 100000 % 10))"
((bytes <= most_mb * 1000000)) || die "more than $most_mb MB"
