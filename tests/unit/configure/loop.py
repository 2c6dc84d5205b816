"""A host in a folder: its facts are asked of a real shell and read by their own parsers, its commands are run there.

So a second run sees what the first one has written, and nothing in between is written down by hand.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from tests.unit.configure.stub import StubHost, at

Shell = Callable[[str], subprocess.CompletedProcess[str]]


class LoopHost(StubHost):
    def __init__(self, shell: Shell, executing: bool = True) -> None:
        super().__init__({}, executing=executing)
        self.shell = shell

    def get_fact(self, fact: type, **kwargs: Any) -> Any:
        self.asked.append((fact, kwargs))
        question = fact()
        return question.process(self.shell(question.command(**kwargs)).stdout.splitlines())


def carried_out(operation: Any, shell: Shell, **arguments: Any) -> list[str]:
    """Commands that an operation sends, each run before it goes on, as in a run; the last one may fail."""
    host = LoopHost(shell)
    sent = []
    with at(host):
        for command in operation._inner(**arguments):
            sent.append(command.get_raw_value())
            done = shell(sent[-1])
            assert done.returncode == 0, (done.stderr, host.logged)
    return sent


def left_alone(operation: Any, shell: Shell, **arguments: Any) -> str:
    """That an operation sends nothing; why, in its own words."""
    host = LoopHost(shell)
    with at(host):
        sent = [command.get_raw_value() for command in operation._inner(**arguments)]
    assert not sent, "\n".join((*host.logged, *sent))
    (reason,) = host.noops
    return reason


SYSTEMCTL = r"""
# Units are folders below $D, with the files enabled, masked and active; NAME.start is what a unit does.
D=@root@/units
state() { u=$D/$1; mkdir -p "$u"
  if [ -e "$u/masked" ]; then f=masked; elif [ -e "$u/enabled" ]; then f=enabled; else f=disabled; fi
  a=inactive; [ ! -e "$u/active" ] || a=active; }
begin() { : >"$D/$1/active"; t=${1%.service}
  case $t in *@*) s=$D/${t%%@*}@.start;; *) s=$D/$t.start;; esac
  [ ! -e "$s" ] || sh "$s" "${t#*@}" || { rm -f "$D/$1/active"; return 1; }; }
verb=$1; shift
case "$verb $*" in
"show -p After "*) f=/etc/systemd/system/$3; [ -e $f ] || f=$D/$3.packaged
  sed -n '/^After=/p' $f 2>/dev/null; exit;;
"show -P FragmentPath "*) echo "$D/$3.packaged"; exit;;
esac
names=; now=; status=0; first=1
for each; do case $each in --now) now=1;; -*) ;; *) names="$names $each";; esac; done
for n in $names; do
  state "$n"
  case $verb in
  show) [ -n "$first" ] || echo
    printf 'Id=%s\nLoadState=%s\nActiveState=%s\nUnitFileState=%s\nNeedDaemonReload=no\n' "$n" loaded $a $f; first=;;
  is-active) [ $a = active ] || status=3;;
  is-enabled) echo $f;;
  enable) : >"$u/enabled"; [ -z "$now" ] || begin "$n" || status=1;;
  disable) rm -f "$u/enabled";;
  mask) : >"$u/masked";; unmask) rm -f "$u/masked";;
  start) [ $a = active ] || begin "$n" || status=1;;
  restart) begin "$n" || status=1;;
  try-restart) [ $a != active ] || begin "$n" || status=1;;
  stop) rm -f "$u/active";;
  esac
done
exit $status
"""
"""systemctl, as far as the kit asks it; ``@root@`` stands for the folder."""
