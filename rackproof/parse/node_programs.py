"""Documents of the kit's programs on the nodes: an object of JSON that has the program's mark as a key."""

from __future__ import annotations

import json
from typing import Any

from rackproof.parse.errors import ParseError
from rackproof.parse.jsondoc import find_json


def parse_document(program: str, output: str | bytes, mark: str) -> dict[str, Any]:
    """The only one. Raises ParseError as ``find_json``."""
    document: dict[str, Any] = find_json(program, output, lambda value: value.get(mark) == 1).value
    return document


def parse_documents(program: str, output: bytes, mark: str) -> list[dict[str, Any]]:
    """Any number of them, a line each, between other text. Raises ParseError for a line that is cut off."""
    documents = []
    for line in output.decode(errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ParseError(program, f"its answer is cut off or damaged ({error})") from None
        if document.get(mark) == 1:
            documents.append(document)
    return documents
