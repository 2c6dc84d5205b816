# shellcheck shell=sh
# Prints SELinux's mode, firewalld's state and zones, and AppArmor's restrictions, in five sections divided by "--".
: "${userns?}"
export LC_ALL=C
ask() { timeout -k 2 10 firewall-cmd "$@" 2>/dev/null; }
# shellcheck disable=SC2005  # a line also where there is no such file
echo "$(cat /sys/fs/selinux/enforce 2>/dev/null)"
echo --
if systemctl -q is-active firewalld.service; then echo active; ask --get-default-zone; fi
echo --
if systemctl -q is-active firewalld.service; then ask --get-active-zones; fi
echo --
# shellcheck disable=SC2005
echo "$(cat "/proc/sys/$userns" 2>/dev/null)"
echo --
grep -oE '^podman ' /sys/kernel/security/apparmor/profiles 2>/dev/null
