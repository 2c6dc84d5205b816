# shellcheck shell=sh
# off: shuts the domain down, ends it if that takes too long, and calls back: the node gets its GPUs and their services.
# domain, down_s: time of a clean shutdown, gpus: their number. kept: file with the services that ran before.
: "${domain?}" "${down_s?}" "${gpus?}" "${kept?}"
off() {
  began=$(date +%s)
  how=none
  next=0
  while :; do
    state=$(timeout -k 5 30 virsh -c qemu:///system domstate "$domain" 2>&1)
    case $state in 'shut off'*) break ;; esac
    passed=$(($(date +%s) - began))
    if [ "$passed" -ge $((down_s + 60)) ]; then
      echo "the domain $domain does not end, virsh says: $state" | tr '\n' ' ' >&2
      return 1
    elif [ "$passed" -ge "$down_s" ]; then
      how=destroy
      timeout -k 5 60 virsh -c qemu:///system destroy "$domain" >/dev/null 2>&1
    elif [ "$passed" -ge "$next" ]; then # a guest that boots ignores the first ones
      how=shutdown
      next=$((passed + 15))
      timeout -k 5 30 virsh -c qemu:///system shutdown "$domain" >/dev/null 2>&1
    fi
    sleep 1
  done
  back || return 1
  printf '%s\n' 'rackproof guest off 1' "$how" "$(date +%s.%N)" 'end of off'
}
back() {
  began=$(date +%s)
  until there=$(timeout 60 nvidia-smi -L 2>/dev/null | grep -c '^GPU ') && [ "$there" = "$gpus" ]; do
    if [ $(($(date +%s) - began)) -ge 120 ]; then
      echo "the node has $there of its $gpus GPUs after the domain $domain has ended" >&2
      return 1
    fi
    sleep 1
  done
  [ -e "$kept" ] || return 0
  while read -r unit; do timeout 120 systemctl restart "$unit" || return 1; done <"$kept"
  rm -f -- "$kept"
}
