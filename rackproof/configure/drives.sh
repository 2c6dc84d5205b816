# shellcheck shell=sh
# drive_state PATTERN: prints the drives that a pattern matches, and their content. Reads only.
: "${blank_bytes?}"
drive_state() {
  { IFS=
    # shellcheck disable=SC2086  # a pattern
    for d in $1; do [ -b "$d" ] && echo "$(readlink -f -- "$d") $d"; done
  } | sort -u -k1,1 | while read -r d name; do
    echo "device=$d"
    echo "name=$name"
    echo "kind=$(lsblk -dnro TYPE -- "$d")"
    found=$(blkid -p -s TYPE -s LABEL -o export -- "$d" | sed -n "s/^TYPE=/type=/p; s/^LABEL=/label=/p")
    # What else is on it matters only where no file system is recognised.
    [ -z "$found" ] || { echo "$found"; continue; }
    lsblk -nro PATH -- "$d" | tail -n +2 | sed "s/^/holder=/"
    findmnt -rno TARGET -S "$d" | sed "s/^/mounted=/"
    wipefs --no-act --noheadings --output TYPE -- "$d" | sed "s/^/signature=/"
    cmp -s -n "$blank_bytes" -- "$d" /dev/zero && echo zero=yes
  done
}
