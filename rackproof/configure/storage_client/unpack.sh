# shellcheck shell=sh
# Unpacks sources into a temporary folder, which is removed when the script ends, and changes to it.
: "${sources?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xf "$sources" -C "$work" --strip-components=1
cd "$work" || exit
