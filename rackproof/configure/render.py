"""Templates, as they land on a node: a name in the tree is the path on the target plus ``.j2``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rackproof import kit


class Templates:
    """Renders files of one template tree; an undefined variable is an error, never an empty string."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Nothing here is markup: these are configuration files and scripts.
        self._environment = Environment(  # noqa: S701
            loader=FileSystemLoader(root),
            undefined=StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def text(self, path: str, **values: Any) -> str:
        """The content of the file that lands at ``path`` (absolute, on the target)."""
        return self._environment.get_template(f"{path.lstrip('/')}.j2").render(**values)


templates: Final = Templates(kit.folder("templates"))
"""The kit's own."""
