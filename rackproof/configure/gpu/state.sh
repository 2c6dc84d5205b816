# shellcheck shell=sh
# The driver and its stack, in 16 sections divided by "--". "$@": packages to ask about.
: "${family?}" "${modules?}" "${stamp?}" "${keys?}" "${fabric_unit?}" "${pending?}" "${smi?}" "${smi_limit_s?}"
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
for m in $modules; do
  [ -d "/sys/module/$m" ] || continue
  v=
  [ ! -r "/sys/module/$m/version" ] || read -r v <"/sys/module/$m/version"
  echo "$m $v"
done
echo --
cat /proc/driver/nvidia/version 2>/dev/null
echo --
cat /proc/driver/nvidia/params 2>/dev/null
echo --
modinfo -F version nvidia 2>/dev/null
modinfo -F license nvidia 2>/dev/null
echo --
if [ $# -gt 0 ]; then
  if [ "$family" = rhel ]; then
    rpm -q --qf '%{NAME} %{VERSION}-%{RELEASE}\n' -- "$@" 2>/dev/null | grep -v 'not installed'
  else
    dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\n' -- "$@" 2>/dev/null
  fi
fi
echo --
if [ $# -gt 0 ]; then
  if [ "$family" = rhel ]; then dnf -q -C versionlock list; else apt-mark showhold; fi 2>/dev/null
fi
echo --
[ "$family" != rhel ] || sed -n 's/^stream=//p' /etc/dnf/modules.d/nvidia-driver.module 2>/dev/null
echo --
grep -q -w -E 'ib_umem_dmabuf_get(_pinned)?' /proc/kallsyms 2>/dev/null && echo dmabuf
echo --
for f in /dev/nvidia*; do [ ! -e "$f" ] || printf '%s\n' "${f##*/}"; done
echo --
for d in /sys/bus/pci/devices/*; do
  { read -r v <"$d/vendor" && [ "$v" = 0x10de ]; } || continue
  l=$(readlink "$d/driver")
  echo "${d##*/} ${l##*/}"
done 2>/dev/null
echo --
cat "$stamp" 2>/dev/null
echo --
for k in $keys; do [ ! -e "$k" ] || mokutil --test-key "$k" 2>/dev/null; done
echo --
systemctl show -p After "$fabric_unit" 2>/dev/null | grep -o -w multi-user.target
echo --
for f in "$pending"/*; do [ ! -e "$f" ] || printf '%s\n' "${f##*/}"; done
echo --
[ -z "$smi" ] || timeout "$smi_limit_s" nvidia-smi -q -x 2>&1 | base64 -w0
echo
echo --
[ -z "$smi" ] || timeout "$smi_limit_s" nvidia-smi -L 2>&1 | base64 -w0
echo
