"""A login without rights: it gets the same answers as root, but for checks that say that they need root."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rackproof.core.failure import DENIED, NEEDS_ROOT

PLAIN = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
OUTCOMES = {"failure": "failed", "error": "unmeasured", "skipped": "skipped"}


def outcomes(folder: Path, *login: str) -> dict[str, tuple[str, str]]:
    """By check: outcome and message of a validation of this machine."""
    work = folder / ("plain" if login else "root")
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    done = subprocess.run(
        [*login, sys.executable, "-m", "rackproof", "validate", "--local", "--architecture", "virtual-rack",
         "--role", "gpu", "--quiet", "--junit", "out.xml"],
        cwd=work, env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(work)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    cases = ElementTree.parse(work / "out.xml").getroot().iter("testcase")  # noqa: S314  (the kit's own)
    return {
        str(case.get("name")): next(
            ((OUTCOMES[child.tag], child.get("message", "")) for child in case if child.tag in OUTCOMES), ("passed", "")
        )
        for case in cases
    }


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_plain_login_gets_the_answers_of_root_or_is_told_what_needs_root(tmp_path: Path) -> None:
    for part in (tmp_path, *tmp_path.parents[:2]):
        part.chmod(part.stat().st_mode | 0o011)
    started = subprocess.run([*PLAIN, sys.executable, "-c", "import rackproof"], check=False, capture_output=True)
    if started.returncode != 0:
        pytest.skip("this Python is in a folder that only root may read")
    as_root, as_user = outcomes(tmp_path), outcomes(tmp_path, *PLAIN)
    assert as_user.keys() == as_root.keys()
    assert len(as_user) > 100
    same = [name for name in as_root if as_user[name][0] == as_root[name][0]]
    assert len(same) > 0.9 * len(as_root)
    for name in as_root.keys() - same:
        outcome, message = as_user[name]
        assert outcome == "unmeasured", name
        assert NEEDS_ROOT.search(message) or DENIED.search(message) or "needs root" in message, (name, message)
    assert any("needs root" in message or DENIED.search(message) for _, message in as_user.values())
