# shellcheck shell=sh
# Programs of these names or paths, the packages that own them, and files that differ from those packages.
# tools: folder of the programs that the deploy builds, with their digests. image: of the site, or empty; engine: runs it.
: "${tools?}" "${engine?}" "${image?}"
LC_ALL=C
export LC_ALL
echo 'rackproof programs 1'
for name in "$@"; do
  shift
  if path=$(command -v "$name") && [ -f "$path" ]; then
    real=$(readlink -f -- "$path")
    echo "program $name $real"
    set -- "$@" "$real"
    case $real in "$tools"/*/bin/*)
      folder=${real%/bin/*}
      built=$(sed -n "s|  ${real##*/}\$||p" "$folder/programs.sha256" 2>/dev/null)
      [ -z "$built" ] || echo "built $real $built $(cat "$folder/sha256")"
      ;;
    esac
  else
    echo "program $name"
  fi
  [ "$name" != ingest.image ] || "$engine" image inspect --format \
    '{{.Id}}{{range .RepoDigests}} {{.}}{{end}}' "$image" 2>/dev/null | sed "s/^\(sha256:\)*/contained /"
  [ "$name" != ceph-osd ] || cat /var/lib/ceph/*/osd.*/unit.image 2>/dev/null | sort -u | sed "s/^/image $name /"
done
echo --
[ "$#" = 0 ] || sha256sum -- "$@"
echo --
if command -v dpkg-query >/dev/null; then
  for path in "$@"; do # packages may list it below / or below /usr
    shift
    set -- "$@" "$path" "${path#/usr}"
  done
  owners=$(dpkg-query -S "$@" 2>/dev/null)
  echo "$owners"
  echo --
  for package in $(echo "$owners" | sed -n '/^diversion /d; s/: \/.*//p' | tr -d , | sort -u); do
    echo "package $package"
    timeout 100 dpkg -V "$package" 2>&1
    echo "status $?"
  done
else
  packages=
  for path in "$@"; do
    if owner=$(rpm -qf --qf '%{NAME} ' "$path" 2>/dev/null); then
      echo "${owner% }: $path"
      packages="$packages $owner"
    fi
  done
  echo --
  for package in $(echo "$packages" | tr ' ' '\n' | sort -u); do
    echo "package $package"
    timeout 100 rpm -V "$package" 2>&1
    echo "status $?"
  done
fi
echo --
echo 'end of programs'
