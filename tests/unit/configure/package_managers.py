"""Stand-ins for apt, dpkg, dnf and rpm that install whatever they are asked for, and remember it."""

from __future__ import annotations

from pathlib import Path

_STATE = r"""
D=@state@; P=$D/installed; H=$D/held; O=$D/offered
add() { grep -v "^$1 " $P >$P.n || :; echo "$1 $2" >>$P.n; mv $P.n $P; }
version() { awk -v n="$1" '$1 == n || $1 "-" $2 == n { print $2; exit }' $P; }
offered() { awk -v n="$1" '$1 == n || $1 == "*" { print $2 }' $O; }
after() { while [ "$1" != -- ] && [ $# -gt 1 ]; do shift; done; shift; printf '%s\n' "$@"; }
"""
_READ = r"""
function known(   line, word) {  # versions by name, and by name and version
  while ((getline line <P) > 0) {
    split(line, word, " ")
    if (!(word[1] in V)) V[word[1]] = word[2]
    if (!((word[1] "-" word[2]) in V)) V[word[1] "-" word[2]] = word[2]
  }
}
"""
_DPKG_QUERY = (
    r"""
shift; f=$1; shift; [ "${1:-}" != -- ] || shift
[ $# -gt 0 ] || set -- $(awk '{ print $1 }' $P)
awk -v f="${f#-f=}" -v P="$P" '"""
    + _READ
    + r"""
BEGIN {
  known()
  for (i = 1; i < ARGC; i++) {
    n = ARGV[i]
    if (!(n in V)) { print "dpkg-query: no packages found matching " n >"/dev/stderr"; s = 1; continue }
    u = V[n]; sub(/^[^:]*:/, "", u); sub(/-[^-]*$/, "", u)
    t = f
    gsub(/[$][{]db:Status-Status[}]/, "installed", t); gsub(/[$][{]Package[}]/, n, t)
    gsub(/[$][{]Version[}]/, V[n], t); gsub(/[$][{]source:Upstream-Version[}]/, u, t)
    printf "%s", t
  }
  exit s
}' "$@"
"""
)
_DPKG_DEB = 'case $3 in Package) basename "$2" .deb;; *) echo 1.0-1;; esac'
_APT_CACHE = r"""
for n in $(after "$@"); do for v in $(offered "$n"); do echo "$n | $v | https://x.example Packages"; done; done
"""
_APT_GET = r"""
case " $* " in *" -s "*) exit 0;; *" install "*) ;; *) exit 0;; esac
for each in $(after "$@"); do
  case $each in
  /*) add "$(basename "$each" .deb)" 1.0-1;;
  *=*) add "${each%%=*}" "${each#*=}";;
  *) v=$(offered "$each" | head -n 1); add "$each" "${v:-1.0-1}";;
  esac
done
"""
_APT_MARK = r"""
verb=$1; shift
for each; do
  case $verb,$each in
  *,--) ;;
  hold,*) grep -qx -- "$each" $H || echo "$each" >>$H;;
  unhold,*) grep -vx -- "$each" $H >$H.n || :; mv $H.n $H;;
  esac
done
[ $verb != showhold ] || cat $H
"""
_DNF = r"""
case " $* " in
*" module enable "*) for each; do :; done
  mkdir -p /etc/dnf/modules.d
  printf '[nvidia-driver]\nstream=%s\n' "${each#*:}" >/etc/dnf/modules.d/nvidia-driver.module;;
*" module reset "*) rm -f /etc/dnf/modules.d/nvidia-driver.module;;
*" versionlock list "*) cat $H;;
*" versionlock delete "*) for each in $(after "$@"); do grep -v "^$each-[0-9]" $H >$H.n || :; mv $H.n $H; done;;
*" versionlock add "*) for each; do :; done; echo "$each" >>$H;;
*" --assumeno "*) ;;
*" install "*)
  for each in $(after "$@"); do
    case $each in /*) add "$(basename "$each" .rpm)" 1.0-1.el9; continue;; esac
    # The version begins with the first part that is numbers with a point.
    found=$(awk -v s="$each" '$1 "-" $2 == s { print $1, $2; found = 1; exit } END { if (!found) {
      k = split(s, part, "-"); n = part[1]
      for (i = 2; i <= k && part[i] !~ /^([0-9]+:)?[0-9]+\./; i++) n = n "-" part[i]
      v = part[i]; for (i++; i <= k; i++) v = v "-" part[i]
      sub(/\*$/, "1.el9", v); print n, (v == "" ? "1.0-1.el9" : v) } }' $O)
    add "${found% *}" "${found#* }"
  done;;
*) exit 0;;
esac
"""
_RPM = (
    r"""
f=; p=
while [ $# -gt 0 ]; do
  case $1 in --import) exit;; --qf) f=$2; shift;; -qp) p=1;; -q|--quiet) ;; --) shift; break;; *) break;; esac
  shift
done
awk -v f="$f" -v p="$p" -v P="$P" '"""
    + _READ
    + r"""
BEGIN {
  known()
  for (i = 1; i < ARGC; i++) {
    n = ARGV[i]; e = 0
    if (p) { sub(/.*[/]/, "", n); sub(/[.]rpm$/, "", n); v = "1.0-1.el9" }
    else if (n in V) v = V[n]
    else { print "package " n " is not installed"; s = 1; continue }
    if (v ~ /:/) { e = v; sub(/:.*/, "", e); sub(/^[^:]*:/, "", v) }
    r = "1.el9"; if (v ~ /-/) { r = v; sub(/^[^-]*-/, "", r) }
    w = v; sub(/-.*/, "", w)
    t = f == "" ? n "-" v ".x86_64\n" : f
    gsub(/%[{]NAME[}]/, n, t); gsub(/%[{]VERSION[}]/, w, t); gsub(/%[{]RELEASE[}]/, r, t)
    gsub(/%[{]EPOCHNUM[}]/, e, t); gsub(/%[{]ARCH[}]/, "x86_64", t)
    printf "%s", t
  }
  exit s
}' "$@"
"""
)
PROGRAMS = {
    "apt-cache": _APT_CACHE,
    "apt-get": _APT_GET,
    "apt-mark": _APT_MARK,
    "dnf": _DNF,
    "dpkg-deb": _DPKG_DEB,
    "dpkg-query": _DPKG_QUERY,
    "rpm": _RPM,
}


def stand_ins(state: Path, offered: str = "* 1.0-1\n") -> dict[str, str]:
    """Bodies of shell scripts by name of the program.

    ``state`` is a folder with ``installed`` (``NAME VERSION``), ``held``, and ``offered``: what repositories have, the
    newest first, where ``*`` is any package.
    """
    state.mkdir(exist_ok=True)
    for name, text in (("installed", ""), ("held", ""), ("offered", offered)):
        (state / name).write_text(text)
    return {name: _STATE.replace("@state@", str(state)) + body for name, body in PROGRAMS.items()}
