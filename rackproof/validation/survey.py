"""Run all checks of a rack, live or recorded, without pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rackproof.core.evidence import CheckResult
from rackproof.core.planned_checks import PlannedChecks, planned
from rackproof.remote import command_cache
from rackproof.remote.collect import Question
from rackproof.validation.context import Context
from rackproof.validation.evaluate import Case, call
from rackproof.validation.known import Checks, Function


def survey(
    context: Context, checks: Checks, on_planned: Callable[[PlannedChecks], object] = lambda planned: None
) -> Iterator[CheckResult]:
    """Results of every selected check, node by node in the order of the inventory.

    ``on_planned`` is called once, before the first command. Readings of live nodes are prefetched, all nodes at once.
    Raises RunError for a malformed ``-k``.
    """
    chosen = list(cases(context, checks))
    on_planned(planned((case.check.id, case.item, case.node.name) for _, case in chosen))
    if context.fleet is not None:
        questions: dict[str, list[Question]] = {}
        for function, case in chosen:
            questions.setdefault(case.node.name, []).append(partial(call, function, context.given(case)))
        functions = {case.check.id: function for function, case in chosen}
        context.gather(questions, command_cache.subject_of(functions.items(), context.arch.model_dump_json()))
    for function, case in chosen:
        yield context.evaluate(function, case)
    context.remember()


def cases(context: Context, checks: Checks) -> Iterator[tuple[Function, Case]]:
    """Cases that the context's selection includes."""
    selection = context.selection
    selected = [(check, function) for check, function in checks.values() if selection.has_check(check)]
    for node in context.rack.nodes:
        if not selection.has_node(node.name):
            continue
        for check, function in selected:
            for item in check.items(context.arch, node, context.rack):
                case = Case(check, node, item)
                names = (function.__code__.co_filename.rpartition("/")[2], f"{function.__name__}[{case.id}]", check.id)
                if selection.has_name(*names):
                    yield function, case
