#!/bin/sh
# Managed by rackproof. Names RDMA devices after their ports: `rackproof-rdma-names apply|check`.
#
# The kernel numbers devices in the order in which they answer, and udev cannot exchange two names: a device that has
# a name that belongs to another one gets out of the way first.
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
	# At boot a driver may be a moment behind its network interface.
	n=0
	while wrong | grep -q ' none$' && [ $n -lt "${RACKPROOF_WAIT_S:-60}" ]; do n=$((n + 1)); sleep 1; done
	todo=$(wrong)
	[ -n "$todo" ] || return 0
	printf '%s\n' "$todo" | while read -r port name actual; do
		actual=$(now "$port")
		[ -z "$actual" ] || rdma dev set "$actual" name "rp_$port"
		# Whoever else has the name: a device that is no rail, or one whose turn comes.
		if [ -e "$R/sys/class/infiniband/$name" ]; then rdma dev set "$name" name "rp_$name"; fi
	done
	wrong | while read -r port name actual; do
		[ "$actual" = none ] || rdma dev set "$actual" name "$name"
	done
	# Devices that are no rails and had to give their names away get the first ones that nobody has.
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
