# shellcheck shell=sh
# Installs the kit from standard input: its stamp, the list for pip (base64), and the archive (base64). The archive is
# unpacked to a temporary folder, which is renamed; the environment is built only for new dependencies. "$@": pip's
# options for the package index.
: "${base?}" "${venv?}" "${python?}" "${stamp_file?}"
set -eu
umask 022
fail() { echo "health check: $1" >&2; exit 1; }
read -r stamp
read -r listed
[ -x "$python" ] || fail "no $python here; name another one in health_check.python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$python is older than Python 3.11; name a newer one in health_check.python"
mkdir -p "$base/bin"
rm -f -- "$stamp_file"
rm -rf -- "$base/kit.new"
mkdir "$base/kit.new"
base64 -d | tar -x -z -f - -C "$base/kit.new"
if ! [ -e "$venv/complete" ]; then
  rm -rf -- "$venv"
  "$python" -m venv "$venv" || fail "no environment can be made; is python3-venv installed?"
  echo "$listed" | base64 -d >"$venv/requirements.txt"
  timeout -k 10 1500 "$venv/bin/pip" --quiet --disable-pip-version-check --no-input install \
    --only-binary :all: --require-hashes "$@" -r "$venv/requirements.txt" ||
    fail "pip could not install the kit's dependencies: name a package index that this node reaches in\
 health_check.index_url, or a folder with the wheels in health_check.wheelhouse"
  touch "$venv/complete"
fi
rm -rf -- "$base/kit.old"
[ ! -e "$base/kit" ] || mv -T "$base/kit" "$base/kit.old"
mv -T "$base/kit.new" "$base/kit"
rm -rf -- "$base/kit.old"
printf '#!/bin/sh\nPYTHONPATH=%s exec %s -P -m rackproof "$@"\n' "$base/kit" "$venv/bin/python" >"$base/bin/.rackproof"
chmod 755 "$base/bin/.rackproof"
mv -f "$base/bin/.rackproof" "$base/bin/rackproof"
timeout -k 10 300 "$base/bin/rackproof" validate --help >/dev/null || fail "the kit does not start"
for old in "$base"/venv-*; do [ "$old" = "$venv" ] || rm -rf -- "$old"; done
# The stamp is written last, so that an interrupted installation is repeated.
echo "$stamp" >"$stamp_file.new"
mv -f "$stamp_file.new" "$stamp_file"
