"""The recipes of the disk images, and what the nodes of a release need: recipe.yaml."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

IMAGE_FORMAT: Final = "7"
"""Increase it when rackproof.lab.image makes another image from the same recipe."""


@cache
def _recipes() -> dict[str, Any]:
    recipes: dict[str, Any] = yaml.safe_load(files("rackproof.lab").joinpath("recipe.yaml").read_text())
    return recipes


def releases() -> tuple[str, ...]:
    """Debian releases that the lab can boot; the first is the default."""
    return tuple(_recipes()["releases"])


def read_recipe(release: str) -> tuple[dict[str, Any], str]:
    """The kit's recipe of a release, and the name of its image.

    The name has a hash of the values: another comment in the recipe is the same image.
    """
    recipe = {key: value for key, value in _recipes().items() if key != "releases"}
    for key, absent in _recipes()["releases"][release]["without"].items():
        recipe[key] = [value for value in recipe[key] if value not in absent]
    digest = hashlib.sha256(json.dumps([IMAGE_FORMAT, release, recipe]).encode()).hexdigest()
    return recipe, f"{release}-{digest[:16]}"


def host_data_of(release: str, rack: Iterable[str]) -> dict[str, Any]:
    """Inventory data that a node of ``release`` needs in a rack of the releases ``rack``."""
    own = _recipes()["releases"][release]
    architecture = own.get("architecture") if set(rack) == {release} else None
    return {**own.get("host_data", {}), **({"architecture": architecture} if architecture else {})}
