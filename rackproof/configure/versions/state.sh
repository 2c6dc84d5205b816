# shellcheck shell=sh
# Versions of packages, holds, half-configured packages, and free space; each list but the last with its exit status.
: "${family?}" "${room?}"
export LC_ALL=C
# shellcheck disable=SC2016  # dpkg-query reads these names
if [ "$family" = rhel ]; then
  versions() { rpm -q --qf 'installed %{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' -- "$@"; }
  held() { dnf -q versionlock list; }
  broken() { true; }
else
  versions() { dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\n' -- "$@"; }
  held() { apt-mark showhold; }
  broken() { dpkg-query -W -f='${db:Status-Status} ${Package}\n' | grep -Ev '^(installed|config-files|not-installed) '; }
fi
# Without names the programs would list all packages, or fail.
[ $# = 0 ] || versions "$@" 2>/dev/null
echo status $?
echo --
held 2>/dev/null
echo status $?
echo --
broken 2>/dev/null
echo status $?
echo --
for d in $room; do echo "$d $(df -Pk -- "$d" 2>/dev/null | tail -n 1)"; done
