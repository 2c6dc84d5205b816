# shellcheck shell=sh
# Builds modules for a kernel and checks them, because package scripts hide failed builds.
: "${kernel?}" "${package?}" "${modules?}"
export LC_ALL=C
fail() { echo "$1" >&2; exit 1; }
[ -e "/lib/modules/$kernel/build/Makefile" ] ||
  fail "headers of kernel $kernel are missing, so no module can be built for it; add $package to the kernel of the version\
 set"
command -v dkms >/dev/null || fail 'dkms is not installed; the packages of the set should bring it'
for module in $modules; do
  v=$(dkms status -m "$module" | sed -nE 's|^[^/,]+[/,] ?([^,:]+).*|\1|p' | sort -V | tail -n 1)
  [ -n "$v" ] || fail "$module: dkms does not know it; is its package in the version set?"
  dkms install -m "$module" -v "$v" -k "$kernel" >&2 ||
    fail "$module $v does not build for kernel $kernel; see /var/lib/dkms/$module/$v/build/make.log; lock a version that\
 supports the kernel"
  dkms status -m "$module" -v "$v" -k "$kernel" | grep -q ': installed' ||
    fail "$module $v: built and not installed for kernel $kernel"
done
