# shellcheck shell=sh
# Verifies the driver that is installed for a kernel, and loads it or leaves marks that say what prevents that.
# Positional parameters are the plan's reasons for a reboot, on top of those that the script sees itself.
: "${release?}" "${kernel_reason?}" "${build_s?}" "${version?}" "${branch?}" "${flavour?}" "${ask?}"
: "${followers?}" "${modules?}" "${others?}" "${other_reason?}" "${marks?}"
mark() { mkdir -p "${marks%/*}"; : >"$marks$1"; echo "reboot required: $1"; blocked=1; }
info() { modinfo ${release:+-k "$release"} "$@"; }
kernel="kernel $release"
[ -n "$release" ] || kernel="the running kernel $(uname -r)"
# Packages build for the kernel that runs, and for the newest one at most.
[ -z "$build_s" ] || info nvidia >/dev/null 2>&1 || timeout "$build_s" dkms autoinstall -k "$release" >&2 || :
want=$(info -F version nvidia 2>/dev/null) || fail "no module nvidia for $kernel: dkms status and its make.log say why"
[ -z "$version" ] || [ "$want" = "$version" ] || fail "the module nvidia for $kernel is $want, declared is $version"
[ -n "$version" ] || [ "${want%%.*}" = "$branch" ] ||
  fail "the module nvidia for $kernel is $want, declared is branch $branch"
for package in $followers; do
  follower=$($ask -- "$package" 2>/dev/null) || fail "$package: no version to be read"
  [ "$follower" = "$want" ] ||
    fail "$package is $follower, the module nvidia is $want: without the same version no NVSwitch is set up; declare the \
exact one (gpu: {driver: $want} in the inventory), and put both on the mirror"
done
case $(info -F license nvidia) in *GPL*) kind=open ;; *) kind=proprietary ;; esac
[ "$kind" = "$flavour" ] ||
  fail "the module nvidia for $kernel is the $kind one, these GPUs need the $flavour one"
blocked=
[ -z "$release" ] || mark "$kernel_reason"
for module in $others; do
  [ ! -d "/sys/module/$module" ] || mark "$other_reason"
done
if [ -r /sys/module/nvidia/version ]; then
  read -r have </sys/module/nvidia/version
  [ "$have" = "$want" ] || mark "driver $have loaded, $want installed"
fi
for reason; do mark "$reason"; done
[ -z "$blocked" ] || exit 0
for module in $modules; do
  name=$(echo "$module" | tr _ -)
  [ ! -d "/sys/module/$module" ] || continue
  case $module in
    nvidia_peermem)
      hint='the RDMA stack has no peer memory; install DOCA-OFED before the driver, or declare gpu.gpudirect: dmabuf'
      ;;
    ib_umad)
      hint="the fabric manager speaks to these switches through it; install the kernel's modules \
(linux-modules-extra-…, kernel-modules-core) or DOCA-OFED"
      ;;
    *) hint="see dmesg: NVRM and 'module verification failed' say why" ;;
  esac
  timeout 300 modprobe "$name" || fail "$name cannot be loaded: $hint"
  [ -d "/sys/module/$module" ] || fail "$name is not loaded although modprobe said nothing"
done
have=$(sed -n 's/^NVRM version: .* \([0-9][0-9]*\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version)
[ "$have" = "$want" ] || fail "the driver in force is ${have:-none}, installed is $want"
n=$(timeout 300 nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || n=0
[ "$n" -gt 0 ] ||
  fail "nvidia-smi finds no GPU with driver $want ($kind): $(timeout 60 nvidia-smi 2>&1 | tail -n 1)"
