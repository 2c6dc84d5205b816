"""The refusal of a login shell goes into evidence, log and reports, so it is redacted first."""

from __future__ import annotations

import pytest

from rackproof.core.rack import Node
from rackproof.errors import NodeUnreachable
from rackproof.remote.command import CommandResult
from rackproof.remote.ssh import Connection


@pytest.mark.parametrize("data", [{}, {"_sudo": True}])
def test_a_refusal_is_named_without_its_secrets(monkeypatch: pytest.MonkeyPatch, data: dict[str, object]) -> None:
    connection = Connection(Node("gpu-01", ("gpu",), data))
    refusal = CommandResult("gpu-01", "true", 1, b"", b"sudo: not allowed, password=hunter2 was tried\n")
    monkeypatch.setattr(connection, "_run", lambda *_: refusal)
    with pytest.raises(NodeUnreachable, match="not allowed") as caught:
        connection._prove()
    assert "hunter2" not in str(caught.value)
