# shellcheck shell=sh
# Clock, hardware in slurmd's words, munge key, slurm.conf, Slurm's NVML plugin, and whether the kit changed Slurm.
: "${key?}" "${conf?}" "${changed?}"
export LC_ALL=C
date +%s.%N
echo --
# Before slurmd is installed the kernel answers in the same form, so that a plan shows what will be written.
slurmd -C 2>/dev/null | grep ^NodeName= ||
  lscpu -p=SOCKET,CORE | awk -v m="$(awk '/^MemTotal:/ {print int($2 / 1024)}' /proc/meminfo)" -F, '
    !/^#/ {n++; s[$1]; c[$1 "," $2]}
    END {
      for (x in s) S++
      for (x in c) C++
      if (n) printf "NodeName=x CPUs=%d Boards=1 SocketsPerBoard=%d CoresPerSocket=%d ThreadsPerCore=%d RealMemory=%d\n",
        n, S, C / S, n / C, m
    }'
echo --
[ ! -f "$key" ] || { stat -c '%a %U' "$key" && sha256sum <"$key"; }
echo --
[ ! -f "$conf" ] || { base64 -w0 <"$conf"; echo; }
echo --
ls -- /usr/lib/*/slurm*/gpu_nvml.so /usr/lib64/slurm/gpu_nvml.so 2>/dev/null
echo --
[ ! -e "$changed" ] || echo changed
