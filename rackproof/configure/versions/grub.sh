# shellcheck shell=sh
# Debian's GRUB starts the newest kernel by default; an older one must be named, with its submenu.
: "${release?}" "${drop_in?}"
fail() { echo "$1" >&2; exit 1; }
missing="GRUB has no entry of kernel $release; run update-grub and look at /boot/grub/grub.cfg"
command -v update-grub >/dev/null ||
  fail 'update-grub is not installed, so the default kernel cannot be set; set it in the boot loader'
update-grub >/dev/null 2>&1 || fail 'update-grub fails'
e=$(grep -o -- "gnulinux-$release-advanced-[^']*" /boot/grub/grub.cfg | head -n 1)
m=$(grep -o -- "gnulinux-advanced-[^']*" /boot/grub/grub.cfg | head -n 1)
if [ -z "$e" ] || [ -z "$m" ]; then fail "$missing"; fi
mkdir -p -- "${drop_in%/*}"
printf '# Written by rackproof: the kernel of the version set.\n# kernel %s\nGRUB_DEFAULT="%s>%s"\n' \
  "$release" "$m" "$e" >"$drop_in.rackproof-new"
mv -fT -- "$drop_in.rackproof-new" "$drop_in"
update-grub >/dev/null 2>&1 || fail 'update-grub fails'
grep -qF -- "$e" /boot/grub/grub.cfg || fail "$missing"
