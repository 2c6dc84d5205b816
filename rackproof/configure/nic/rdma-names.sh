#!/bin/sh
# Managed by rackproof. Names RDMA devices after their ports: `rackproof-rdma-names apply|check`.
#
# The kernel numbers devices in the order in which they appear, and udev cannot swap two names: a device with a name
# declared for another one is renamed first.
set -u
R=${RACKPROOF_ROOT:-}
list=$R/etc/rackproof/rdma-names

now() {
	for d in "$R/sys/class/net/$1/device/infiniband/"*; do
		[ -e "$d" ] && { printf '%s' "${d##*/}"; return; }
	done
}

wrong() {
	while read -r port name; do
		case $port in '' | '#'*) continue ;; esac
		actual=$(now "$port")
		[ "$actual" = "$name" ] || echo "$port $name ${actual:-none}"
	done <"$list"
}

apply() {
	# At boot the RDMA device may appear after its network interface.
	n=0
	while wrong | grep -q ' none$' && [ $n -lt "${RACKPROOF_WAIT_S:-60}" ]; do n=$((n + 1)); sleep 1; done
	todo=$(wrong)
	[ -n "$todo" ] || return 0
	printf '%s\n' "$todo" | while read -r port name actual; do
		actual=$(now "$port")
		[ -z "$actual" ] || rdma dev set "$actual" name "rp_$port"
		# Another device has the name: no rail, or a rail that is renamed later.
		if [ -e "$R/sys/class/infiniband/$name" ]; then rdma dev set "$name" name "rp_$name"; fi
	done
	wrong | while read -r port name actual; do
		[ "$actual" = none ] || rdma dev set "$actual" name "$name"
	done
	# Other devices that lost their names get the first free ones.
	for d in "$R"/sys/class/infiniband/rp_*; do
		[ -e "$d" ] || continue
		n=0
		while [ -e "$R/sys/class/infiniband/mlx5_$n" ] || grep -q " mlx5_$n\$" "$list"; do n=$((n + 1)); done
		rdma dev set "${d##*/}" name "mlx5_$n"
	done
	check
}

check() {
	left=$(wrong)
	[ -z "$left" ] && return 0
	printf '%s\n' "$left" | while read -r port name actual; do
		echo "$port: expected RDMA device $name, actual $actual" >&2
	done
	return 1
}

case ${1:-} in
apply | check) "$1" ;;
*) echo "usage: rackproof-rdma-names apply|check" >&2; exit 2 ;;
esac
