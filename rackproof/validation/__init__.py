"""Checks of a rack: testinfra tests with a name, a reason and three outcomes."""

from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import Blames, always, announce, answered, check, expect, expect_all, read

__all__ = ["Blames", "Unmeasured", "always", "announce", "answered", "check", "expect", "expect_all", "read"]
