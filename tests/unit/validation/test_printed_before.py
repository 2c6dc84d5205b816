"""A line that any program prints before its answer leaves a trace in the result of every check that reads it."""

from __future__ import annotations

import re
from dataclasses import replace

from rackproof.core.evidence import CheckOutcome
from rackproof.core.judging.judge import judge
from rackproof.core.status import Outcome, Status
from rackproof.parse.preamble import BEGINNINGS
from tests.unit.judging import CHECKED, architecture, check, run_info, verdicts
from tests.unit.validation.checking import subjects

LINE = "WARNING: frobnicator 999 is degraded"
NO_DOCUMENT = {
    r"^su -l root": "a login prints what it likes before",
    r"^(?:cat /sys|cat /proc/(?:cmdline|driver/nvidia/params)|cat /etc/nccl)": "a file, which no program precedes",
    r"^ls /dev/infiniband|^ssh |^pgrep |^test -x": "whether it succeeds is the answer",
    r"--version|ibv_devinfo -l|--help": "a version is any text with a number",
}
"""Commands whose output has no beginning, and why."""


def test_every_check_shows_what_was_printed_before_its_answer() -> None:
    silent, tried, begun = set(), 0, set()
    for subject in subjects():
        for node, command, readers in subject.answers_read():
            begun |= {part for part, _ in BEGINNINGS if re.search(part, command)}
            answer = subject.answers(node).read(command)
            context = subject.answering(node, replace(answer, stdout=f"{LINE}\n".encode() + answer.stdout))
            for seen in readers:
                tried += 1
                result = context.evaluate(seen.function, seen.case)
                if LINE not in result.message + result.beside:
                    assert result.outcome is not CheckOutcome.FAILED, (result.check, result.message)
                    silent.add(command)
    assert tried > 500
    assert {c for c in silent if not any(re.search(why, c) for why in NO_DOCUMENT)} == set()
    assert {why for why in NO_DOCUMENT if not any(re.search(why, c) for c in silent)} == set()
    assert {part for part, _ in BEGINNINGS} - begun == {
        r"\w_perf\b",
        r"\bnvbandwidth -j|/gpu\.py ",
        r"rackproof load \d",
    }, "asked by benchmarks only"


def test_healthy_racks_print_nothing_before_their_answers() -> None:
    beside = {r.result.beside for s in subjects() for cases in s.healthy.values() for r in cases}
    assert beside == {""}


def test_a_check_that_passes_beside_a_remark_is_a_warning() -> None:
    words = "nvidia-smi also printed: WARNING: infoROM is corrupted at gpu 0000:B3:00.0"
    result = judge(architecture(), run_info(), (), (*CHECKED, check("gpu-01", "gpu.count", beside=words)))
    verdict = verdicts(result.restricted_to("check"), "gpu.count")["gpu-01"]
    assert (verdict.status, verdict.message) == (Status.WARN, words)
    assert result.restricted_to("check").outcome is Outcome.PASSED
