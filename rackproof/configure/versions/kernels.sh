# shellcheck shell=sh
# Prints the running, the installed and the default kernel, whether the locked release has headers, and DKMS modules.
: "${headers?}" "${grub_drop_in?}"
export LC_ALL=C
uname -r
echo --
for f in /boot/vmlinuz-*; do [ ! -e "$f" ] || printf "%s\n" "${f#/boot/vmlinuz-}"; done | sort -V
echo --
if command -v grubby >/dev/null; then
  grubby --default-kernel
else
  sed -n 's/^# kernel //p' "$grub_drop_in" 2>/dev/null
fi
echo --
[ ! -e "$headers" ] || echo headers
echo --
if command -v dkms >/dev/null; then timeout 120 dkms status; echo status $?; else echo status 127; fi
echo --
