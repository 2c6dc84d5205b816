"""Checks of a rack: testinfra tests with a name, a reason and three outcomes."""

from rackproof.remote.recording import Unmeasured
from rackproof.validation.checks import always, announce, check, expect, expect_all, read

__all__ = ["Unmeasured", "always", "announce", "check", "expect", "expect_all", "read"]
