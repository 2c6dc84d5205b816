# shellcheck shell=sh
# Waits until the guest answers and has booted. boot_s: its time. After guest_ssh.sh.
: "${boot_s?}"
began=$(date +%s)
until complaint=$(inside true </dev/null 2>&1); do
  passed=$(($(date +%s) - began))
  case $complaint in *'key verification failed'*) passed=$boot_s ;; esac
  if [ "$passed" -ge "$boot_s" ]; then
    printf '%s\n' "$complaint" | tail -n 1 >&2
    exit 1
  fi
  sleep 2
done
# its status is 1 also where a unit has failed
inside 'systemctl is-system-running --wait' </dev/null || :
