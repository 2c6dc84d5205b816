# shellcheck shell=sh
# One side of the comparison, the node or its guest: the domain, the machine, its GPUs, and what its processors did.
# domain: empty in the guest. list: command that lists the GPUs. After state.sh.
: "${domain?}" "${list?}"
echo 'rackproof guest side 1'
if [ -n "$domain" ]; then
  command -v virsh >/dev/null || { echo "virsh is not installed: install libvirt-clients" >&2; exit 1; }
  for question in domuuid domstate 'dumpxml --inactive'; do
    # shellcheck disable=SC2086
    timeout -k 5 30 virsh -c qemu:///system $question "$domain" || exit 1
  done
fi
echo --
systemd-detect-virt --vm
cat /sys/class/dmi/id/product_uuid
echo --
eval "$list" || exit 1
echo --
state
echo 'end of side'
