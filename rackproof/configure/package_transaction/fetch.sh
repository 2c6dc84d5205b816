# shellcheck shell=sh
# Download a file and compare its digest: it is there completely and with the right content, or not at all.

rp_fetch() {
  mkdir -p -- "${3%/*}"
  if [ -f "$3" ] && echo "$2  $3" | sha256sum -c --status; then return 0; fi
  command -v curl >/dev/null || { echo "curl is not installed" >&2; return 1; }
  if ! rp_why=$(curl -fsSL --retry 2 --connect-timeout 20 --max-time 600 -o "$3.part" -- "$1" 2>&1); then
    rm -f -- "$3.part"
    echo "$1: $(echo "$rp_why" | tail -n 1)" >&2
    return 1
  fi
  rp_digest=$(sha256sum "$3.part" | cut -d' ' -f1)
  if [ "$rp_digest" != "$2" ]; then
    rm -f -- "$3.part"
    echo "$1: expected sha256 $2, actual $rp_digest; nothing was kept" >&2
    return 1
  fi
  mv -f -- "$3.part" "$3"
}
