# shellcheck shell=sh
# What is built: a line for each tool with the digest of its sources, that of its MPI, and its parts that are unchanged.
: "${tools?}" "${mpi_word?}" "${libraries?}"
parts() {
  # FOLDER
  cat "$1/sha256"
  [ ! -f "$1/mpi" ] || echo "$mpi_word$(cat "$1/mpi")"
  cd "$1/bin" 2>/dev/null && LC_ALL=C sha256sum -c ../programs.sha256 2>/dev/null | sed -n 's/: OK$//p'
  cd "$1/lib" 2>/dev/null && sha256sum --status -c ../libraries.sha256 2>/dev/null && echo "$libraries"
}
for f in "$tools"/*/sha256; do
  # shellcheck disable=SC2046  # all on one line
  [ ! -f "$f" ] || echo "$f" $(parts "${f%/*}")
done
