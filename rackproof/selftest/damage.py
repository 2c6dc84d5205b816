"""Damaged answers, and the outcomes that a check may have for each.

A fault changes the machine, a damage changes only the answer, and every check is tried with all damages. A destroyed
answer must never lead to PASS, an answer with additional text never to FAIL. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from rackproof.core.evidence import CheckOutcome
from rackproof.remote.command import CommandResult, not_finished
from rackproof.selftest.mutation import cut

PASSED, FAILED, UNMEASURED = CheckOutcome.PASSED, CheckOutcome.FAILED, CheckOutcome.UNMEASURED

NO_ANSWER = frozenset({UNMEASURED})
"""The check must be unmeasured."""
NO_GOOD_ANSWER = frozenset({UNMEASURED, FAILED})
"""Other text instead of the answer: the check may fail or be unmeasured, but must not pass."""
ANY_ANSWER = frozenset(CheckOutcome)
"""Some commands fail on healthy machines."""
NO_BAD_ANSWER = frozenset({PASSED, UNMEASURED})
"""The answer is complete: the check may pass or be unmeasured, but must not fail."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged answer. ``change`` returns an equal result where the damage does not apply."""

    name: str
    title: str
    allowed: frozenset[CheckOutcome]
    change: Callable[[CommandResult], CommandResult]
    words: str = ""
    """Words of the program that the message of a check must repeat unless the check passes."""

    def unclear(self, message: str) -> str:
        """Words missing in the message of a check that did not pass; empty if the message is clear."""
        if _STATUS_FIRST.match(message):
            return "the cause or the program first"
        return "" if self.words in message or _REFERENCE.search(message) else f"{self.words!r}"


def _says(text: str) -> Callable[[CommandResult], CommandResult]:
    return lambda result: replace(result, rc=0, stdout=text.encode(), stderr=b"")


def _cut(share: float) -> Callable[[CommandResult], CommandResult]:
    def change(result: CommandResult) -> CommandResult:
        text = result.stdout.decode("utf-8", "surrogateescape")
        return replace(result, stdout=cut(text, share).encode("utf-8", "surrogateescape"))

    return change


def _preceded(text: str) -> Callable[[CommandResult], CommandResult]:
    return lambda result: replace(result, stdout=text.encode() + result.stdout)


_STATUS = re.compile(rb"(?m)^status \d{1,3}\n\Z")
_DECIMAL = re.compile(rb"(?<![\w.,=/+-])(\d+)\.(\d+)(?![\w.+-])")
"""Measured numbers, which a locale changes; not versions, addresses and settings."""


def _status(printed: bytes, number: int) -> Callable[[CommandResult], CommandResult]:
    """Damage for commands that print their own exit status as last line."""

    def change(result: CommandResult) -> CommandResult:
        if not _STATUS.search(result.stdout):
            return result
        return replace(result, stdout=printed + b"status %d\n" % number)

    return change


def _decimal_commas(result: CommandResult) -> CommandResult:
    return replace(result, stdout=_DECIMAL.sub(rb"\1,\2", result.stdout))


def _flipped(result: CommandResult) -> CommandResult:
    """Set the highest bit of every byte, as a serial line with wrong settings does."""
    return replace(result, stdout=bytes(byte | 0x80 for byte in result.stdout))


def _warned(result: CommandResult) -> CommandResult:
    return replace(result, stderr=_PERL.encode() + result.stderr)


def _refused_beside(result: CommandResult) -> CommandResult:
    if _SILENT.search(result.command) or not _STATUS.search(result.stdout):
        return result
    return replace(result, stdout=b"status 5\n", stderr=f"tool: {_CAUSE}\n".encode())


def _killed(result: CommandResult) -> CommandResult:
    half = _cut(0.5)(result)
    return replace(half, rc=137, stderr=b"Killed\n")


_STATUS_FIRST = re.compile(r"(?i)(?:[\w./ -]+: )*exit status \d|not finished")
_REFERENCE = re.compile(r"; see [a-z_]+\.[a-z_0-9]+$")
"""The check with the cause."""
_SILENT = re.compile(r"2>&1|2>/dev/null|grep -s")
"""Redirections in commands without error output."""
_CAUSE = "cannot open the frobnicator: Unknown error 999"
_PERL = 'perl: warning: Setting locale failed.\nperl: warning: Falling back to the standard locale ("C").\n'
_BANNER = "Authorised use only!\nAll activity is logged.\n"

DAMAGES: tuple[Damage, ...] = (
    Damage("empty", "No output, exit status 0", NO_ANSWER, lambda r: replace(r, rc=0, stdout=b"")),
    Damage("blanks", "Nothing but blank lines", NO_ANSWER, lambda r: replace(r, stdout=b" \n\n \n")),
    Damage("cut-10", "Cut off after a tenth", NO_GOOD_ANSWER, _cut(0.1)),
    Damage("cut-50", "Cut off in the middle", NO_GOOD_ANSWER, _cut(0.5)),
    Damage("cut-90", "Cut off shortly before its end", NO_GOOD_ANSWER, _cut(0.9)),
    Damage("binary", "Binary instead of text", NO_ANSWER, lambda r: replace(r, stdout=b"\x00\xfe\xff\x1b[0m" * 20)),
    Damage("garbled", "Every byte has its highest bit set", NO_ANSWER, _flipped),
    Damage("decimal-commas", "Numbers in German or French", NO_BAD_ANSWER, _decimal_commas),
    Damage("message-german", "A message in German", NO_GOOD_ANSWER, _says("Datei oder Verzeichnis nicht gefunden\n")),
    Damage("message-french", "A message in French", NO_GOOD_ANSWER, _says("Aucun fichier ou dossier de ce nom\n")),
    Damage("warnings-before", "Warnings before the output", NO_BAD_ANSWER, _preceded(_PERL)),
    Damage("warnings-stderr", "Warnings beside the output", frozenset({PASSED}), _warned),
    Damage("banner-before", "A login banner before the output", NO_BAD_ANSWER, _preceded(_BANNER)),
    Damage("banner", "A login banner and nothing else", NO_GOOD_ANSWER, _says(_BANNER)),
    Damage("foreign-text", "The words of a crash", NO_GOOD_ANSWER, _says("Segmentation fault (core dumped)\n")),
    Damage(
        "hung", "Not finished in time", NO_ANSWER,
        lambda r: replace(r, rc=None, stdout=b"", error=not_finished(r.timeout_s)),
    ),
    Damage("lost", "Connection lost", NO_ANSWER, lambda r: replace(r, rc=None, error="connection lost")),
    Damage(
        "no-tool", "The program is not installed", NO_ANSWER,
        lambda r: replace(r, rc=127, stdout=b"", stderr=b"sh: 1: tool: not found\n"), "tool is not installed",
    ),
    Damage("no-tool-said", "The program is not installed, in the answer", NO_GOOD_ANSWER,
           _status(b"sh: 1: tool: not found\n", 127)),
    Damage("refused", "The program fails and says why", NO_GOOD_ANSWER,
           lambda r: replace(r, rc=1, stdout=b"", stderr=f"Starting.\ntool: {_CAUSE}\n\n".encode()), _CAUSE),
    Damage("refused-said", "The program fails and says why, in the answer", ANY_ANSWER,
           _status(f"Starting.\ntool: {_CAUSE}\n".encode(), 5), _CAUSE),
    Damage("refused-beside", "The program fails and says why, beside the answer", ANY_ANSWER, _refused_beside, _CAUSE),
    Damage("killed", "Ended by the kernel for lack of memory, half its output printed", NO_GOOD_ANSWER, _killed),
    Damage("error-with-status-0", "An error, and exit status 0", NO_GOOD_ANSWER,
           _says("Error: unable to determine the device handle: Unknown Error\n")),
    Damage("good-with-status-1", "A good answer, and exit status 1", NO_BAD_ANSWER, lambda r: replace(r, rc=1)),
)  # fmt: skip
