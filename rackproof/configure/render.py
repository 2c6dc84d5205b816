"""Templates of files on nodes: the path of a template in the tree is the path on the node plus ``.j2``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rackproof import kit


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
        )

    def text(self, path: str, **values: Any) -> str:
        """Content of the file at ``path`` (absolute, on the node)."""
        return self._environment.get_template(f"{path.lstrip('/')}.j2").render(**values)


templates: Final = Templates(kit.folder("templates"))
"""The kit's templates."""
