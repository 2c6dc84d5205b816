"""The 37 tasks of ``converge.py``, about as many as ``deploys/cluster.py`` has, for all tools."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).resolve().parent
TEMPLATE = "settings.conf.j2"
DIRECTORIES = tuple(f"/etc/bench/part-{number}" for number in range(5))
FILES = tuple((f"{DIRECTORIES[number % 5]}/settings-{number:02d}.conf", number) for number in range(20))
BLOCKS = tuple((f"/etc/bench-{number}.conf", f"limit {number}\nname bench-{number}\n") for number in range(10))
PACKAGES = ("iproute2", "openssh-server", "procps", "sudo")
USER, SHELL, HOME = "bench", "/bin/sh", "/home/bench"
TASKS = len(DIRECTORIES) + len(FILES) + len(BLOCKS) + 2

_environment = Environment(  # noqa: S701  (configuration files)
    loader=FileSystemLoader(HERE), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
)


def text(node: str, number: int) -> str:
    return _environment.get_template(TEMPLATE).render(node=node, number=number)


def playbook() -> str:
    """The tasks as an ansible playbook, in JSON, which is valid YAML."""
    tasks: list[dict[str, object]] = [{"ansible.builtin.apt": {"name": list(PACKAGES), "state": "present"}}]
    tasks += [{"ansible.builtin.file": {"path": path, "state": "directory", "mode": "0755"}} for path in DIRECTORIES]
    tasks += [
        {
            "ansible.builtin.template": {"src": str(HERE / TEMPLATE), "dest": path, "mode": "0644"},
            "vars": {"node": "{{ inventory_hostname }}", "number": number},
        }
        for path, number in FILES
    ]
    tasks += [
        {
            "ansible.builtin.blockinfile": {
                "path": path, "block": block, "marker": "# {mark} rackproof", "create": True, "mode": "0644",
            }
        }
        for path, block in BLOCKS
    ]  # fmt: skip
    tasks.append({"ansible.builtin.user": {"name": USER, "shell": SHELL, "home": HOME}})
    if len(tasks) != TASKS:
        raise ValueError(f"{len(tasks)} tasks, expected {TASKS}")
    return json.dumps([{"hosts": "gpu", "gather_facts": False, "tasks": tasks}], indent=1)
