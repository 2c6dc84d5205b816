"""Wrong content that no criterion judges: FAIL. A number of wrong elements above 0 is never left out of a certificate,
whatever message size, scope or rail the architecture's criteria name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackproof.core.grouping import grouped
from rackproof.core.judging.bars import number_text
from rackproof.core.judging.select import Answer, Index, quantity, sources_of
from rackproof.core.metrics import METRICS, OF_CONTENT
from rackproof.core.status import Status
from rackproof.core.verdict import Verdict, required_verdict
from rackproof.core.wording import counted, some

_SHOWN = 3
"""Maximum number of other measurements, and of places, that a message names."""


def judge_content(index: Index, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """A verdict for each subject and metric with wrong content of which ``verdicts`` have no required FAIL."""
    failed = [v for v in verdicts if v.required and v.status is Status.FAIL and v.metric]
    wrong = grouped(
        ((metric, subject), answer)
        for metric, subject, answer in index.measured(OF_CONTENT)
        if answer.disproven is None and max(answer.samples) > 0 and not any(_covers(v, metric, answer) for v in failed)
    )
    for (metric, subject), answers in wrong.items():
        worst, *others = sorted(answers, key=lambda answer: (-max(answer.samples), sorted(answer.labels)))
        text = f"expected 0, actual {number_text(max(worst.samples))} ({_named(metric, worst)})"
        if others:
            named = some([_named(metric, other) for other in others], _SHOWN, "; ")
            text += f"; {counted(len(others), 'further measurement', 'further measurements')}: {named}"
        yield required_verdict(
            f"content[{metric}]", f"Wrong content that no criterion names: {METRICS[metric].meaning}", subject,
            Status.FAIL, "; ".join([text, *worst.damage[:_SHOWN]]),
            "Wrong results are no matter of speed: training goes on with them and says nothing.",
            "Repeat the step without one node at a time: it is right without the one with bad memory, link or driver.",
            kind="criterion", metric=metric, labels=dict(sorted(worst.labels)), value=max(worst.samples),
            unit=METRICS[metric].unit, samples=worst.samples, **sources_of(answers),
        )  # fmt: skip


def _covers(verdict: Verdict, metric: str, answer: Answer) -> bool:
    """Whether the verdict is about this number: the run over all nodes says nothing of one inside a node."""
    of_metric = verdict.metric == metric and verdict.labels.items() <= dict(answer.labels).items()
    return of_metric and set(answer.raw) <= set(verdict.raw)


def _named(metric: str, answer: Answer) -> str:
    return quantity(metric, dict(answer.labels)).removeprefix(metric).strip("[]") or metric
