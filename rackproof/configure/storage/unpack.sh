# shellcheck shell=sh
# Unpacks sources into a folder of its own, which goes with the script, and works there.
: "${sources?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xf "$sources" -C "$work" --strip-components=1
cd "$work" || exit
