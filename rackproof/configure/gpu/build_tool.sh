# shellcheck shell=sh
# Builds a program for GPUs in the folder of its unpacked sources, and puts it below prefix. "$@": its programs.
# sha256: digest of the sources; links: folder of links to the programs, empty for none.
: "${tool?}" "${prefix?}" "${sha256?}" "${links?}"
fail() { echo "$tool: $1" >&2; exit 1; }
nvcc=/usr/local/cuda/bin/nvcc
[ -x "$nvcc" ] || nvcc=$(command -v nvcc) || fail "no nvcc on this node: gpu.cuda installs CUDA's toolkit"
cuda=${nvcc%/bin/nvcc}
PATH=$PATH:$cuda/bin
export PATH
log=/var/log/rackproof-build-$tool.log
[ -w /var/log ] || log=build.log
case $tool in
nvbandwidth)
  timeout 300 cmake -DCMAKE_CUDA_COMPILER="$nvcc" . >"$log" 2>&1 &&
    timeout 1500 make -j "$(nproc)" >>"$log" 2>&1
  ;;
nccl_tests)
  mpicc=$(command -v mpicc) || mpicc=/usr/lib64/openmpi/bin/mpicc
  flags=
  for folder in $("$mpicc" --showme:incdirs); do flags="$flags -I$folder"; done
  for folder in $("$mpicc" --showme:libdirs); do flags="$flags -L$folder"; done
  NVCC_APPEND_FLAGS=$flags timeout 1500 make -j "$(nproc)" MPI=1 CUDA_HOME="$cuda" >"$log" 2>&1
  ;;
perftest)
  { timeout 300 ./autogen.sh && timeout 300 ./configure CUDA_H_PATH="$cuda/include/cuda.h"; } >"$log" 2>&1 &&
    timeout 600 make -j "$(nproc)" >>"$log" 2>&1
  ;;
esac || { tail -n 5 "$log" >&2; fail "it could not be built; see $log"; }
umask 022 # benchmarks run as a user of their own
rm -rf -- "$prefix.new"
mkdir -p -- "$prefix.new/bin"
for program; do
  [ -x "$program" ] || fail "its build gives no ${program##*/}; see $log"
  ! ldd "$program" 2>/dev/null | grep 'not found' >&2 || fail "${program##*/} lacks libraries"
  cp -- "$program" "$prefix.new/bin/"
done
echo "$sha256" >"$prefix.new/sha256"
(cd "$prefix.new/bin" && sha256sum -- *) >"$prefix.new/programs.sha256"
rm -rf -- "$prefix"
mv -- "$prefix.new" "$prefix"
if [ -n "$links" ]; then
  mkdir -p -- "$links"
  for program; do ln -sfn -- "$prefix/bin/${program##*/}" "$links/${program##*/}"; done
fi
