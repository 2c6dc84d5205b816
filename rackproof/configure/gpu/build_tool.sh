# shellcheck shell=sh
# Builds a program for GPUs, or an MPI, in the folder of its unpacked sources, and puts it below prefix. "$@": its
# programs. sha256: digest of the sources; links: folder of links to the programs, empty for none; mpi: folder of the
# MPI that the deploy built, and the digest of its sources, empty for the distribution's.
: "${tool?}" "${prefix?}" "${sha256?}" "${links?}" "${mpi?}" "${mpi_sha256?}"
fail() { echo "$tool: $1" >&2; exit 1; }
log=/var/log/rackproof-build-$tool.log
[ -w /var/log ] || log=build.log
tree= # folder of files that are installed with their folders
with_cuda() {
  nvcc=/usr/local/cuda/bin/nvcc
  [ -x "$nvcc" ] || nvcc=$(command -v nvcc) || fail "no nvcc on this node: gpu.cuda installs CUDA's toolkit"
  cuda=${nvcc%/bin/nvcc}
  PATH=$PATH:$cuda/bin
  export PATH
  unset MPI_HOME NCCL_HOME NVCC CUDA_LIB # what make would prefer
  # Machine code of this node's GPUs: the driver may be too old for intermediate code of a newer CUDA.
  archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -x '[0-9]*\.[0-9]' | tr -d . | sort -u)
}
with_mpi() {
  mpicc=$mpi/bin/mpicc
  [ -n "$mpi" ] || mpicc=$(command -v mpicc) || mpicc=/usr/lib64/openmpi/bin/mpicc
  [ -x "$mpicc" ] || fail "no $mpicc: gpu.tools.openmpi was not built, or openmpi's headers are missing"
}
case $tool in
openmpi) # its own copies of what a package of the distribution might replace; 4.1 warns that it has no prrte
  tree=stage$prefix
  { timeout 900 ./configure --prefix="$prefix" --disable-mpi-fortran --with-hwloc=internal \
    --with-libevent=internal --with-pmix=internal --with-prrte=internal; } >"$log" 2>&1 &&
    timeout 1800 make -j "$(nproc)" >>"$log" 2>&1 && timeout 300 make install DESTDIR="$PWD/stage" >>"$log" 2>&1
  ;;
mpi4py)
  with_mpi
  tree=built
  MPICC=$mpicc timeout 900 python3 setup.py build --build-lib=built/lib >"$log" 2>&1 &&
    (cd built/lib && timeout 60 python3 -c 'import mpi4py; mpi4py.rc.initialize = False; import mpi4py.MPI') >>"$log" 2>&1
  ;;
nvbandwidth)
  with_cuda
  # CMake 3.18 and later choose an architecture of their own, which upstream's search takes for the user's
  timeout 300 cmake -DCMAKE_CUDA_COMPILER="$nvcc" \
    ${archs:+"-DCMAKE_CUDA_ARCHITECTURES=$(echo "$archs" | paste -sd ';' -)"} . >"$log" 2>&1 &&
    timeout 1500 make -j "$(nproc)" >>"$log" 2>&1
  ;;
nccl_tests)
  with_cuda
  with_mpi
  flags="-Xlinker -rpath=$cuda/lib64" # a CUDA of no package is not known to the loader
  code=
  for arch in $archs; do code="$code -gencode=arch=compute_$arch,code=sm_$arch"; done
  [ -z "$code" ] || export NVCC_GENCODE="$code"
  for folder in $("$mpicc" --showme:incdirs); do flags="$flags -I$folder"; done
  for folder in $("$mpicc" --showme:libdirs); do flags="$flags -L$folder -Xlinker -rpath=$folder"; done
  NVCC_APPEND_FLAGS=$flags timeout 1500 make -j "$(nproc)" MPI=1 CUDA_HOME="$cuda" >"$log" 2>&1
  ;;
perftest)
  with_cuda
  { timeout 300 ./autogen.sh && timeout 300 ./configure CUDA_H_PATH="$cuda/include/cuda.h"; } >"$log" 2>&1 &&
    timeout 600 make -j "$(nproc)" >>"$log" 2>&1
  ;;
esac || {
  tail -n 5 "$log" >&2
  cause=$(grep -m 1 -e 'error: ' -e '^nvcc fatal' "$log" | cut -c 1-200) # make goes on with other files
  [ -n "$cause" ] || cause=$(grep -m 1 -A 2 '^CMake Error' "$log" | tr -s ' \n' ' ' | cut -c 1-200)
  fail "it could not be built${cause:+: $cause}; see $log"
}
umask 022 # benchmarks run as a user of their own
rm -rf -- "$prefix.new"
mkdir -p -- "$prefix.new/bin"
[ -z "$tree" ] || cp -R -P -- "$tree/." "$prefix.new/" || fail "its files could not be copied to $prefix.new"
for program; do
  made=${tree:+$tree/}$program
  [ -x "$made" ] || fail "its build gives no ${program##*/}; see $log"
  ! LD_LIBRARY_PATH=${tree:+$PWD/$tree/lib} ldd "$made" 2>/dev/null | grep 'not found' >&2 ||
    fail "${program##*/} lacks libraries"
  [ -n "$tree" ] || cp -- "$program" "$prefix.new/bin/"
done
chmod -R go+rX -- "$prefix.new"
echo "$sha256" >"$prefix.new/sha256"
[ -z "$mpi_sha256" ] || echo "$mpi_sha256" >"$prefix.new/mpi"
(cd "$prefix.new/bin" && for file in *; do [ ! -f "$file" ] || sha256sum -- "$file"; done) >"$prefix.new/programs.sha256"
[ -z "$tree" ] || (cd "$prefix.new/lib" && find . -type f -exec sha256sum -- {} +) >"$prefix.new/libraries.sha256"
rm -rf -- "$prefix"
mv -- "$prefix.new" "$prefix"
if [ "$tool" = mpi4py ]; then # before the distribution's
  site=$(python3 -I -c 'import site; print(next(p for p in site.getsitepackages() if p.startswith("/usr/local/")))') ||
    fail "python3 looks for no packages in /usr/local"
  mkdir -p -- "$site"
  ln -sfn -- "$prefix/lib/mpi4py" "$site/mpi4py"
fi
if [ -n "$links" ]; then
  mkdir -p -- "$links"
  for program; do ln -sfn -- "$prefix/bin/${program##*/}" "$links/${program##*/}"; done
fi
