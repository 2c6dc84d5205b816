# shellcheck shell=sh
# MPIs of a node: launchers with their versions, the library of mpi4py, and the kinds of MPI that srun starts.
: "${declared?}" "${built?}"
echo 'rackproof mpi 1'
default=$(command -v mpirun)
seen=
for path in "$declared" "$built" "$default" /usr/lib64/openmpi/bin/mpirun /usr/mpi/gcc/openmpi-*/bin/mpirun \
  /opt/hpcx*/ompi/bin/mpirun /opt/nvidia/hpcx*/ompi/bin/mpirun; do
  if [ -x "$path" ] && [ "${seen#* "$path" }" = "$seen" ]; then
    seen="$seen $path "
    [ "$path" = "$default" ] && echo "default $path"
    echo "mpirun $path $(timeout 20 "$path" --version 2>&1 | sed -n '/[^ ]/{p;q;}')"
  fi
done
library='import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version().strip("\0 \n").splitlines()[0])'
echo "mpi4py $(timeout 60 python3 -I -c "$library" 2>&1 | tail -n 1)"
echo "srun $(timeout 20 srun --mpi=list 2>&1 | tr '\n' ' ')"
echo 'end of mpi'
