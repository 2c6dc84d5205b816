# shellcheck shell=sh
# Firmware and settings of adapters, after the boot's id. mst… are the distributions' names of the same tools.
: "${memory?}"
tool() {
  for t; do command -v "$t" 2>/dev/null && return; done
  echo false
}
flint=$(tool flint mstflint)
config=$(tool mlxconfig mstconfig)
adapter() {
  # SLOT [SETTING…]
  slot=$1
  shift
  echo "adapter $slot"
  cat "$memory/$slot" 2>/dev/null
  echo --flint
  timeout 60 "$flint" -d "$slot" q 2>&1
  echo --settings
  [ $# = 0 ] || timeout 60 "$config" -d "$slot" -e query "$@" 2>&1
  echo --
}
cat /proc/sys/kernel/random/boot_id
echo --
