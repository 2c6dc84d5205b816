"""Lines of pyinfra's log."""

from __future__ import annotations

from rackproof.parse.pyinfra_log import is_unconnected, node_line, operation_in, problem_in


def test_an_operation_is_named_without_its_arguments() -> None:
    assert operation_in("--> Starting operation: Mounts | /mnt/a (b) (name=x, y=1)") == "Mounts | /mnt/a (b)"
    assert operation_in("--> Preparing operations...") is None


def test_lines_of_nodes_and_of_none() -> None:
    assert node_line("    [gpu-01]  Success") == ("gpu-01", "Success")
    assert node_line("[gpu-01] first\nsecond") == ("gpu-01", "first\nsecond")
    assert node_line("gpu-01 Success") is None
    assert problem_in("  pyinfra.api.exceptions.OperationError: no such file") == "OperationError: no such file"
    assert problem_in("--> pyinfra error in deploy.py: bad") == "error: bad"
    assert problem_in("Success: 3") is None
    assert is_unconnected("Could not connect (timed out)")
    assert not is_unconnected("Connected")
