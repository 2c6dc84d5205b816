"""The tasks with pyinfra's own operations, one operation a task."""

from __future__ import annotations

from pyinfra.context import host
from pyinfra.operations import apt, files, server

from tasks import work

apt.packages(name="Packages", packages=list(work.PACKAGES))
for path in work.DIRECTORIES:
    files.directory(name=f"Directory {path}", path=path, mode="755")
for path, number in work.FILES:
    files.template(
        name=f"File {path}", src=str(work.HERE / work.TEMPLATE), dest=path, mode="644", node=host.name, number=number,
        jinja_env_kwargs={"trim_blocks": True},
    )  # fmt: skip
for path, block in work.BLOCKS:
    files.block(name=f"Block {path}", path=path, content=block.splitlines(), marker="# {mark} rackproof")
server.user(name="User", user=work.USER, shell=work.SHELL, home=work.HOME)
