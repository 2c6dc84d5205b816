#!/bin/sh
# Managed by rackproof. Settings that a port of a network adapter loses at every boot.
#
#   rackproof-port state PORT…   what is in force, one `key=value` a line below each `port PORT`
#   rackproof-port check PORT    what differs from /etc/rackproof/ports/PORT; exit status 1 if anything does
#   rackproof-port apply PORT    set what differs, then check
#
# Each setting is read from the driver or the device, and set through the interface of the installed driver: NVIDIA's
# packages have files below /sys and mlnx_qos, the in-tree driver has dcb and debugfs.
set -u
LC_ALL=C
export LC_ALL
R=${RACKPROOF_ROOT:-}

have() { command -v "$1" >/dev/null 2>&1; }

first() {
	[ -r "$1" ] && { IFS= read -r line || [ -n "$line" ]; } 2>/dev/null <"$1" && printf '%s' "$line"
}

say() { [ -z "$2" ] || printf '%s=%s\n' "$1" "$2"; }

# The first line of a file as the value, without a process.
tell() {
	line=
	[ ! -r "$2" ] || { IFS= read -r line || :; } 2>/dev/null <"$2"
	say "$1" "$line"
}

rdma_of() {
	for d in "$R/sys/class/net/$1/device/infiniband/"*; do
		[ -e "$d" ] && { printf '%s' "${d##*/}"; return; }
	done
	for d in "$R"/sys/class/infiniband/*/ports/1/gid_attrs/ndevs/0; do
		[ "$(first "$d")" = "$1" ] && { d=${d%/ports/*}; printf '%s' "${d##*/}"; return; }
	done
}

about() {
	port=$1
	net=$R/sys/class/net/$port
	rdma=$(rdma_of "$port")
	slot=
	if [ -e "$net/device" ]; then
		slot=$(cd -P "$net/device" && pwd)
		slot=${slot##*/}
	fi
	cma=$R/sys/kernel/config/rdma_cm/$rdma/ports/1
	cc=$R/sys/kernel/debug/mlx5/$slot/cc_params
}

classes() {
	if have mlnx_qos; then
		timeout 30 mlnx_qos -i "$port" 2>/dev/null | awk '
			/^Priority trust state:/ { print "trust=" $4 }
			/^[ \t]*prio:[0-7] dscp:/ {
				split($1, name, ":"); list = $0; sub(/^.*dscp:/, "", list); n = split(list, codes, ",")
				for (i = 1; i <= n; i++) if (codes[i] ~ /[0-9]/) printf "dscp.%d=%d\n", codes[i], name[2]
			}
			/^Receive buffer size/ {
				sub(/^[^:]*: */, ""); sub(/,?(total|max_buffer)_size=.*$/, ""); sub(/, *$/, ""); print "buffer_size=" $0
			}
			/^PFC configuration/ { within = 1 }
			within && ($1 == "enabled" || $1 == "buffer") {
				row = $2; for (i = 3; i <= 9; i++) row = row "," $i
				print ($1 == "enabled" ? "pfc=" : "prio2buffer=") row
			}'
	elif have dcb; then
		timeout 30 dcb pfc show dev "$port" prio-pfc 2>/dev/null | awk '
			$1 == "prio-pfc" {
				for (i = 2; i <= NF; i++) { split($i, pair, ":"); on[pair[1]] = (pair[2] == "on") }
				row = on[0] + 0; for (i = 1; i < 8; i++) row = row "," (on[i] + 0)
				print "pfc=" row
			}'
		if codes=$(timeout 30 dcb -N app show dev "$port" dscp-prio 2>/dev/null); then
			printf '%s\n' "$codes" | awk '
				$1 == "dscp-prio" {
					for (i = 2; i <= NF; i++) { split($i, pair, ":"); printf "dscp.%d=%d\n", pair[1], pair[2]; any = 1 }
				}
				END { print "trust=" (any ? "dscp" : "pcp") }'
		fi
	fi
}

state_of() {
	about "$1"
	[ -e "$net" ] || { echo absent=yes; return; }
	say slot "$slot"
	say rdma "$rdma"
	tell ipoib_mode "$net/mode"
	tell mtu "$net/mtu"
	for child in "$R/sys/class/net/$port".*; do
		[ -e "$child/pkey" ] && say "child.${child##*.}" yes
	done
	if [ "$(first "$net/type")" = 1 ]; then
		classes
		for point in rp np; do
			for n in 0 1 2 3 4 5 6 7; do tell "ecn.$point.$n" "$net/ecn/roce_$point/enable/$n"; done
		done
		say cnp_dscp "$(first "$net/ecn/roce_np/cnp_dscp" || first "$cc/np_cnp_dscp")"
		say cnp_prio "$(first "$net/ecn/roce_np/cnp_802p_prio" || first "$cc/np_cnp_prio")"
		if [ -n "$rdma" ]; then
			tell tos "$cma/default_roce_tos"
			tell roce_mode "$cma/default_roce_mode"
			say traffic_class "$(sed -n 's/^Global tclass=//p' "$R/sys/class/infiniband/$rdma/tc/1/traffic_class" 2>/dev/null)"
		fi
		ethtool -a "$port" 2>/dev/null | awk '$1 == "RX:" || $1 == "TX:" { print "pause_" tolower(substr($1, 1, 2)) "=" $2 }'
		ethtool -g "$port" 2>/dev/null | awk '
			/^Current/ { now = 1 }
			now && ($1 == "RX:" || $1 == "TX:") { print "ring_" tolower(substr($1, 1, 2)) "=" $2 }'
	fi
	if [ -n "$slot" ] && word=$(setpci -s "$slot" CAP_EXP+8.w 2>/dev/null); then
		case $word in
		[0-9a-f][0-9a-f][0-9a-f][0-9a-f])
			echo "max_read_request=$((128 << ((0x$word >> 12) & 7)))"
			echo "relaxed_ordering=$(((0x$word >> 4) & 1))"
			;;
		esac
	fi
}

# Writes bits of Device Control in the PCIe capability: value and mask.
control() { setpci -s "$slot" "CAP_EXP+8.w=$1:$2"; }

put() { printf '%s\n' "$2" 2>/dev/null >"$1" || echo "$port: $1 does not take $2" >&2; }

connections() {
	[ -d "$R/sys/kernel/config/rdma_cm" ] || modprobe rdma_cm 2>/dev/null
	# The configfs folder stays: settings can only be read while it exists.
	[ -d "$R/sys/kernel/config/rdma_cm/$rdma" ] || mkdir "$R/sys/kernel/config/rdma_cm/$rdma"
	put "$cma/$1" "$2"
}

set_one() {
	key=$1
	value=$2
	case $key in
	trust)
		if have mlnx_qos; then
			timeout 30 mlnx_qos -i "$port" --trust "$value" >/dev/null
		elif [ "$value" = dscp ]; then
			# The in-tree driver trusts DSCP as soon as one entry exists. These are its defaults: eight a class.
			map=$(awk 'BEGIN { for (i = 0; i < 64; i++) printf "%d:%d ", i, i / 8 }')
			# shellcheck disable=SC2086
			timeout 30 dcb app replace dev "$port" dscp-prio $map
		else
			timeout 30 dcb app flush dev "$port" dscp-prio
		fi
		;;
	dscp.*)
		if have mlnx_qos; then
			timeout 30 mlnx_qos -i "$port" --dscp2prio "set,${key#dscp.},$value" >/dev/null
		else
			timeout 30 dcb app replace dev "$port" dscp-prio "${key#dscp.}:$value"
		fi
		;;
	pfc)
		if have mlnx_qos; then
			timeout 30 mlnx_qos -i "$port" --pfc "$value" >/dev/null
		else
			map=$(printf '%s' "$value" | awk -F, '{ for (i = 1; i <= 8; i++) printf "%d:%s ", i - 1, $i ? "on" : "off" }')
			# shellcheck disable=SC2086
			timeout 30 dcb pfc set dev "$port" prio-pfc $map
		fi
		;;
	buffer_size | prio2buffer) timeout 30 mlnx_qos -i "$port" "--$key" "$value" >/dev/null ;;
	ecn.*)
		point=${key#ecn.}
		put "$net/ecn/roce_${point%.*}/enable/${point#*.}" "$value"
		;;
	cnp_dscp) if [ -e "$net/ecn/roce_np/cnp_dscp" ]; then put "$net/ecn/roce_np/cnp_dscp" "$value"; else put "$cc/np_cnp_dscp" "$value"; fi ;;
	cnp_prio)
		if [ -e "$net/ecn/roce_np/cnp_802p_prio" ]; then
			put "$net/ecn/roce_np/cnp_802p_prio" "$value"
		else
			put "$cc/np_cnp_prio" "$value"
		fi
		;;
	tos) connections default_roce_tos "$value" ;;
	roce_mode) connections default_roce_mode "$value" ;;
	traffic_class) put "$R/sys/class/infiniband/$rdma/tc/1/traffic_class" "$value" ;;
	pause_rx) ethtool -A "$port" rx "$value" ;;
	pause_tx) ethtool -A "$port" tx "$value" ;;
	ring_rx) ethtool -G "$port" rx "$value" ;;
	ring_tx) ethtool -G "$port" tx "$value" ;;
	ipoib_mode) put "$net/mode" "$value" ;;
	mtu) ip link set dev "$port" mtu "$value" ;;
	child.*) put "$net/create_child" "0x${key#child.}" ;;
	max_read_request)
		n=0
		while [ $((128 << n)) -lt "$value" ]; do n=$((n + 1)); done
		control "${n}000" 7000
		;;
	relaxed_ordering) control "00${value}0" 0010 ;;
	*) echo "$port: unknown setting $key" >&2 ;;
	esac
}

differing() {
	[ -r "$R/etc/rackproof/ports/$1" ] || { echo "$1: /etc/rackproof/ports/$1 is missing"; return; }
	state=$(state_of "$1")
	case $state in absent=*) echo "$1: there is no such port"; return ;; esac
	printf '%s\n' "$state" | awk -v port="$1" '
		{ key = value = $0; sub(/=.*/, "", key); if (!sub(/^[^=]*=/, "", value)) value = "" }
		NR == FNR { if (!(key in actual)) actual[key] = value; next }
		key == "" || key ~ /^#/ { next }
		(actual[key] "") != (value "") { # as text
			print port ": " key ": expected " value ", actual " (actual[key] == "" ? "nothing" : actual[key])
		}' - "$R/etc/rackproof/ports/$1"
}

check() {
	wrong=$(differing "$1")
	[ -z "$wrong" ] || { printf '%s\n' "$wrong" >&2; return 1; }
}

apply() {
	if grep -qE '^(tos|roce_mode|traffic_class)=' "$R/etc/rackproof/ports/$1" 2>/dev/null; then
		# The ports of a bonded adapter share one RDMA device shortly after the bond is created.
		n=0
		while [ -e "$R/sys/class/net/$1" ] && [ -z "$(rdma_of "$1")" ] && [ $n -lt "${RACKPROOF_WAIT_S:-60}" ]; do
			n=$((n + 1))
			sleep 1
		done
	fi
	# Twice: one setting may reset another to its default.
	pass "$1"
	wrong=$(differing "$1")
	[ -z "$wrong" ] || pass "$1"
	check "$1"
}

pass() {
	about "$1"
	[ -e "$net" ] || { echo "$1: there is no such port" >&2; return 1; }
	differing "$1" | while IFS= read -r line; do
		line=${line#"$1: "}
		key=${line%%: expected *}
		value=${line#*: expected }
		[ "$value" != "$line" ] && set_one "$key" "${value%%, actual *}"
	done
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
state) for port; do echo "port $port"; state_of "$port"; done ;;
check | apply) [ $# -eq 1 ] || { echo "usage: rackproof-port $command PORT" >&2; exit 2; }; "$command" "$1" ;;
*) echo "usage: rackproof-port state PORT… | check PORT | apply PORT" >&2; exit 2 ;;
esac
