# Sourced by tools/bundle.sh and bench/gpu_bundle.sh.

# collect_libraries FOLDER PROGRAM...: copies the shared libraries under the programs there, stripped, by the names that
# they are asked for. The C library is the machine's own.
collect_libraries() {
  local folder=$1 program library
  shift
  for program in "$@"; do
    ldd "$program" | awk '$3 ~ /^\// {print $1, $3}'
  done | sort -u | grep -vE '^(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' |
    while read -r name library; do
      cp -L "$library" "$folder/$name" && strip --strip-unneeded "$folder/$name"
    done
}
