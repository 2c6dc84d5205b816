#!/bin/sh
# Managed by rackproof. PCIe access control services, where the kernel's command line does not set them:
# `rackproof-acs apply|check disabled|no_redirect`. The firmware enables them at every boot; they send packets between a
# GPU and its adapter through the root complex.
set -u
R=${RACKPROOF_ROOT:-}

case ${2:-} in
disabled) bits=ffff ;;
no_redirect) bits=002c ;; # request, completion and egress redirection
*) echo "usage: rackproof-acs apply|check disabled|no_redirect" >&2; exit 2 ;;
esac

left() {
	any=
	for d in "$R"/sys/bus/pci/devices/*; do
		word=$(setpci -s "${d##*/}" ECAP_ACS+6.w 2>/dev/null) || continue
		case $word in [0-9a-f][0-9a-f][0-9a-f][0-9a-f]) ;; *) continue ;; esac
		any=yes
		[ $((0x$word & 0x$bits)) -eq 0 ] || echo "${d##*/}"
	done
	[ -n "$any" ] || echo none
}

check() {
	remaining=$(left)
	case $remaining in
	'') return 0 ;;
	none) echo "no PCI device has access control, or setpci (pciutils) is missing" >&2; return 1 ;;
	*) echo "access control is still on: $(printf '%s' "$remaining" | tr '\n' ' ')" >&2; return 1 ;;
	esac
}

case ${1:-} in
apply)
	for slot in $(left); do
		[ "$slot" = none ] || setpci -s "$slot" "ECAP_ACS+6.w=0000:$bits"
	done
	check
	;;
check) check ;;
*) echo "usage: rackproof-acs apply|check disabled|no_redirect" >&2; exit 2 ;;
esac
