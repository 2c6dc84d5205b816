# shellcheck shell=sh
# Debian's driver is in components that a default installation leaves out: adds them from the source of main, usually the
# site's mirror.
: "${package?}" "${codename?}" "${file?}"
components='contrib non-free non-free-firmware'
if [ -z "$(apt-cache madison "$package" 2>/dev/null)" ]; then
  folder=${file%/*}
  # A source of the same suite must name the same key: whole entries are copied, with other components.
  cat "$folder"/*.sources 2>/dev/null | awk -v RS= -v codename="$codename" -v components="$components" '
    $0 ~ "(^|\n)Suites:[^\n]*" codename && /(^|\n)Components:[^\n]*main/ {
      gsub(/Components:[^\n]*/, "Components: " components); print; print "" }' >"$file.sources.new"
  { grep -hE "^deb .*${codename}[^ ]* (.* )?main( |$)" /etc/apt/sources.list "$folder"/*.list 2>/dev/null || :; } |
    sed -E "s/ main( .*)?$/ $components/" >"$file.list.new"
  for f in "$file.sources" "$file.list"; do
    if [ -s "$f.new" ]; then mv -f "$f.new" "$f"; else rm -f "$f.new"; fi
  done
fi
