# shellcheck shell=sh
# The array of the scratch drives and its file system. Reads only.
: "${array?}" "${blank_bytes?}"
echo array
if [ -b "$array" ]; then
  echo active=yes
  blkid -p -s TYPE -s LABEL -o export -- "$array" | sed -n "s/^TYPE=/type=/p; s/^LABEL=/label=/p"
  d=$(readlink -f -- "$array")
  findmnt -rno TARGET -S "$d" | sed "s/^/mounted=/"
  cmp -s -n "$blank_bytes" -- "$d" /dev/zero && echo zero=yes
fi
