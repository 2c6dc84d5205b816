"""The tasks with the kit's operations, divided as in ``deploys/cluster.py``: files operations, packages, a user."""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from rackproof.configure import facts, operations
from rackproof.configure.files import RemoteDirectory, RemoteFile
from tasks import work


class Passwd(facts.Answer[str]):
    """A user's line of the password file, or none."""

    def command(self, user: str) -> str:
        return facts.complete(f"getent passwd {user}")

    def parse(self, lines: list[str]) -> str:
        return "".join(lines)


@operation()
def user(name_of: str, shell: str, home: str) -> operations.Commands:
    line = host.get_fact(Passwd, user=name_of)
    if line is None:
        yield from operations.unreadable("the password file")
    elif not line:
        yield StringCommand(f"useradd --create-home --home-dir {home} --shell {shell} {name_of}")
    elif line.split(":")[5:] != [home, shell]:
        yield StringCommand(f"usermod --home {home} --shell {shell} {name_of}")
    else:
        host.noop("the user is there")


operations.packages(name="Packages", names=work.PACKAGES)
operations.files(
    name="Base files",
    entries=[
        *(RemoteDirectory(path) for path in work.DIRECTORIES),
        *(RemoteFile(path, work.text(host.name, number)) for path, number in work.FILES[:8]),
    ],
)
operations.files(
    name="Fabric files", entries=[RemoteFile(path, work.text(host.name, number)) for path, number in work.FILES[8:14]]
)
operations.files(
    name="Storage files", entries=[RemoteFile(path, work.text(host.name, number)) for path, number in work.FILES[14:]]
)
operations.files(name="Blocks", entries=[RemoteFile(path, block, block=True) for path, block in work.BLOCKS])
user(name="User", name_of=work.USER, shell=work.SHELL, home=work.HOME)
operations.programs(name="Programs", names=("ip", "ps", "sudo"))
