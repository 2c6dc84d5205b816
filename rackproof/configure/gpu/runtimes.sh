# shellcheck shell=sh
# What container runtimes know of NVIDIA's, the CDI specification's driver, the driver in force, and the toolkit.
: "${cdi?}"
export LC_ALL=C
if command -v docker >/dev/null; then
  timeout 30 docker info -f '{{json .Runtimes}}' 2>/dev/null
  timeout 30 docker info -f '{{.CgroupDriver}}' 2>/dev/null
fi
echo --
if command -v containerd >/dev/null; then
  echo containerd
  timeout 30 containerd config dump 2>/dev/null | grep -E '^ *\[|SystemdCgroup'
fi
echo --
# Links are named for the interface: libcuda.so.1 is no driver's version.
grep -o -m1 -E 'libcuda\.so\.[0-9]+\.[0-9.]+' "$cdi" 2>/dev/null
echo --
cat /sys/module/nvidia/version 2>/dev/null
echo --
command -v nvidia-ctk
