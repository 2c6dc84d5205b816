"""Templates of files on nodes: the path of a template in the tree is the path on the node plus ``.j2``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rackproof import kit
from rackproof.errors import Refused


def _one_line(value: Any) -> Any:
    """A value as it is. Raises Refused for one with a control character: it would add a line to the file."""
    if isinstance(value, str) and not value.replace("\t", "").isprintable():
        raise Refused(f"{value[:60]!r} has a control character: it cannot be part of a file")
    return value


class Templates:
    """Renders files of one template tree; an undefined variable is an error."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # No markup: configuration files and scripts.
        self._environment = Environment(  # noqa: S701
            loader=FileSystemLoader(root),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_one_line,
        )

    def text(self, path: str, **values: Any) -> str:
        """Content of the file at ``path`` (absolute, on the node)."""
        return self._environment.get_template(f"{path.lstrip('/')}.j2").render(**values)


templates: Final = Templates(kit.folder("templates"))
"""The kit's templates."""
