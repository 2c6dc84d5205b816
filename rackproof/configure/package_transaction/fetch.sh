# shellcheck shell=sh
# Download a file and compare its digest: it is there completely and with the right content, or not at all.
# rp_fetch URL SHA256 FILE [LIMIT_S [LOST [OTHER]]]: LOST and OTHER say what to do where the file cannot be fetched, and
# where its digest differs.

rp_fetch() {
  mkdir -p -- "${3%/*}"
  if [ -f "$3" ] && echo "$2  $3" | sha256sum -c --status; then return 0; fi
  if ! rp_why=$(rp_get "$1" "$3.part" "${4:-600}" 2>&1); then
    rm -f -- "$3.part"
    echo "$1: $(echo "${rp_why:-not finished within ${4:-600} s}" | tail -n 1)${5:+; $5}" >&2
    return 1
  fi
  rp_digest=$(sha256sum <"$3.part" | cut -d' ' -f1)
  if [ "$rp_digest" != "$2" ]; then
    rm -f -- "$3.part"
    echo "$1: expected sha256 $2, actual $rp_digest; ${6:-nothing was kept}" >&2
    return 1
  fi
  sync -- "$3.part" && mv -fT -- "$3.part" "$3"
}
# With any downloader that a bare node has; apt's own is on every Debian.
rp_get() {
  case $1 in file://*)
    cp -- "${1#file://}" "$2"
    return
    ;;
  esac
  if command -v curl >/dev/null; then
    curl -fsSL --retry 3 --connect-timeout 20 --max-time "$3" -o "$2" -- "$1"
  elif command -v wget >/dev/null; then
    timeout "$3" wget -nv -t 3 -T 20 -O "$2" -- "$1"
  else
    timeout "$3" /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "$1" "$2" >/dev/null
  fi
}
