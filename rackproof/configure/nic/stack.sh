# shellcheck shell=sh
# Drivers of adapters: OFED, kernel, modules loaded and on disk ("$@"), DKMS, and what uses an adapter for storage.
echo "ofed $(ofed_info -n 2>/dev/null | head -n1)"
echo "kernel $(uname -r)"
for m; do
  l=
  [ ! -r "/sys/module/$m/srcversion" ] || read -r l <"/sys/module/$m/srcversion"
  echo "module $m ${l:--} $(modinfo -F srcversion "$m" 2>/dev/null | grep . || echo -)" \
    "$(modinfo -F filename "$m" 2>/dev/null | grep . || echo -)"
done
dkms status -k "$(uname -r)" 2>/dev/null | sed "s/^/dkms /"
awk '{ print "mount", $2, $3, $4 }' /proc/self/mounts
for t in /sys/class/nvme/*/transport; do
  [ -r "$t" ] || continue
  read -r k <"$t"
  d=${t%/transport}
  echo "nvme ${d##*/} $k"
done
systemctl cat openibd.service >/dev/null 2>&1 && echo openibd
echo --
