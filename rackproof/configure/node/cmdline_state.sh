# shellcheck shell=sh
# Command line of the running kernel, the boot loader's tool, what it starts next, and what the kit has put there.
: "${dropin?}" "${note?}" "${mark?}"
export LC_ALL=C
read -r line </proc/cmdline
echo "running $line"
if command -v grubby >/dev/null; then
  echo tool grubby
  grubby --info=ALL | sed -n 's/^args="\(.*\)"$/entry \1/p'
elif command -v update-grub >/dev/null; then
  echo tool grub
  [ ! -e /boot/grub/grub.cfg ] ||
    sed -n 's/^[[:space:]]*linux\(16\|efi\)\{0,1\}[[:space:]]\{1,\}[^[:space:]]*/entry/p' /boot/grub/grub.cfg
fi
[ ! -e "$dropin" ] || sed 's/^/dropin /' "$dropin"
[ ! -e "$note" ] || sed 's/^/note /' "$note"
[ ! -s "$mark" ] || sed 's/^/gone /' "$mark"
