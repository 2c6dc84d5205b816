"""The pytest plugin behind ``pytest validators/``.

It parametrizes checks with the nodes of the inventory, prefetches their commands, and maps outcomes to the exit status:
0 all passed, 1 something failed, 2 something was not measured, 3 the inventory, the architecture or a validator cannot
be used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

import pytest
from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node, Rack, fold
from rackproof.errors import EXIT_USAGE, RackproofError, RunError
from rackproof.remote import command_cache
from rackproof.remote.collect import Question
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import write_recordings
from rackproof.validation import terminal
from rackproof.validation.checks import Check, check_of
from rackproof.validation.context import Context, open_context, selected
from rackproof.validation.evaluate import Case, call, result_of
from rackproof.validation.outcome import exit_status, write_junit
from rackproof.validation.selection import refuse_unknown

_VALIDATION = "rackproof-validation"
_CASE = "rackproof_case"
_results: pytest.StashKey[Iterable[CommandResult]] = pytest.StashKey()
_RAN_TO_THE_END = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rackproof", "validation of a rack")
    group.addoption("--inventory", metavar="FILE", help="pyinfra inventory of the rack")
    group.addoption(
        "--architecture", metavar="ID", help="reference architecture, by id or file (default: named by group data)"
    )
    group.addoption(
        "--limit", metavar="NODES", action="append", help="only these nodes: gpu-[01-16], gpu-0*, gpu, gpu!gpu-03"
    )
    group.addoption("--tags", metavar="TAGS", help="checks with one of these tags only, e.g. gpu,storage")
    group.addoption("--rackproof-junit", metavar="FILE", help="write JUnit XML, one case for each node and check")
    group.addoption("--rackproof-results", metavar="FILE", help="write all results to FILE, one JSON object per line")
    group.addoption("--record", metavar="DIR", help="write recordings of the results to DIR, one per node")
    group.addoption(
        "--from", dest="recordings", metavar="DIR", help="read recordings in DIR, or those of a run; connect to nothing"
    )


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    if option.help or getattr(option, "version", 0):
        return
    try:
        context = open_context(option.inventory, option.architecture, option.recordings)
        context.selection = selected(context.rack, option.limit or (), option.tags, option.keyword)
        results = _create(option.rackproof_results) if option.rackproof_results else None
    except RackproofError as error:
        pytest.exit(str(error), returncode=EXIT_USAGE)
    config.addinivalue_line("filterwarnings", "default")  # -W error is for tests, not for validators
    if config.getoption("tbstyle", "auto") == "auto":
        option.tbstyle, option.reportchars = "no", ""  # no tracebacks and no summary of them; see terminal.py
    config.pluginmanager.register(Validation(config, context, results), _VALIDATION)


@pytest.fixture
def rackproof_case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


@pytest.fixture
def rackproof_given(request: pytest.FixtureRequest, rackproof_case: Case) -> dict[str, Any]:
    validation: Validation = request.config.pluginmanager.get_plugin(_VALIDATION)  # type: ignore[assignment]
    return validation.context.given(rackproof_case)


@pytest.fixture
def host(rackproof_given: dict[str, Any]) -> Host:
    """testinfra's host of the current node."""
    given_host: Host = rackproof_given["host"]
    return given_host


@pytest.fixture
def node(rackproof_case: Case) -> Node:
    """The current node, from the inventory."""
    return rackproof_case.node


@pytest.fixture
def item(rackproof_case: Case) -> str:
    """The current item of the check's ``each``."""
    return rackproof_case.item


@pytest.fixture
def rack(rackproof_given: dict[str, Any]) -> Rack:
    """All nodes."""
    given_rack: Rack = rackproof_given["rack"]
    return given_rack


@pytest.fixture
def arch(rackproof_given: dict[str, Any]) -> Architecture:
    """The reference architecture."""
    given_arch: Architecture = rackproof_given["arch"]
    return given_arch


class Validation:
    """One pytest session over one rack."""

    def __init__(self, config: pytest.Config, context: Context, results_file: TextIO | None) -> None:
        self.context = context
        self.results: list[CheckResult] = []
        self._config = config
        self._file = results_file
        self._broken: list[str] = []
        self._checks: dict[str, Check] = {}

    def pytest_unconfigure(self) -> None:
        self.context.close()
        if self._file is not None:
            self._file.close()

    def pytest_report_header(self) -> list[str]:
        arch, rack = self.context.arch.metadata, self.context.rack
        return [
            f"rack: {rack.source} ({fold(node.name for node in rack.nodes)})",
            f"architecture: {arch.id} {arch.version}",
            *([self.context.selection.description] if self.context.selection.description else []),
        ]

    # Collection

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        declared = check_of(metafunc.function)
        if declared is None:
            pytest.fail(f"{metafunc.function.__name__} is not a check: it lacks @check(…)", pytrace=False)
        self._checks[declared.id] = declared
        selection = self.context.selection
        cases = [
            Case(declared, node, item)
            for node in self.context.rack.nodes
            if selection.has_node(node.name) and selection.has_check(declared)
            for item in declared.items(self.context.arch, node, self.context.rack)
        ]
        metafunc.fixturenames.append(_CASE)
        metafunc.parametrize(_CASE, cases, ids=[case.id for case in cases], indirect=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order checks by node, in inventory order. Drop empty parameter sets of checks that apply to no node."""
        order = {node.name: index for index, node in enumerate(self.context.rack.nodes)}
        items[:] = [item for item in items if isinstance(_parameter(item), Case)]
        items.sort(key=lambda item: order[_case(item).node.name])
        for item in items:
            item.extra_keyword_matches.add(_case(item).check.id)
        if not self._broken:
            try:
                refuse_unknown(self.context.selection.tags, self._checks.values())
            except RackproofError as error:
                self._abort(error)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            lines = [line.removeprefix("E ").strip() for line in report.longreprtext.splitlines() if line.strip()]
            self._broken.append(f"{report.nodeid}: {lines[-1] if lines else 'cannot be loaded'}")

    # Execution

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Prefetch the commands of the selected checks, on all nodes at once."""
        if not session.config.option.collectonly and not self._broken:
            questions: dict[str, list[Question]] = {}
            checks: dict[str, Any] = {}
            for item in session.items:
                function = getattr(item, "function", None)
                if function is not None:
                    case = _case(item)
                    checks[case.check.id] = function
                    questions.setdefault(case.node.name, []).append(partial(call, function, self.context.given(case)))
            try:
                arch = self.context.arch.model_dump_json()
                self.context.gather(questions, command_cache.subject_of(checks.items(), arch))
            except RackproofError as error:
                self._abort(error)
            outcome = yield
            self.context.remember()
            return outcome
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with self.context.readers[_case(item).node.name].tracing() as results:
            item.stash[_results] = results
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown" or (call.when == "setup" and call.excinfo is None):
            return report
        error = call.excinfo.value if call.excinfo else None
        result = result_of(_case(item), self.context.arch, error, item.stash[_results], self.context.starved)
        report.rackproof = result  # type: ignore[attr-defined]
        report.outcome = "passed" if result.outcome is CheckOutcome.PASSED else "failed"
        if report.outcome == "failed" and self._config.getoption("tbstyle", "no") == "no":
            report.longrepr = terminal.block(result)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result: CheckResult | None = getattr(report, "rackproof", None)
        if result is None:
            return
        self.results.append(result)
        if self._file is not None:
            self._file.write(result.model_dump_json() + "\n")
            self._file.flush()

    def _abort(self, error: BaseException) -> NoReturn:
        pytest.exit(str(error), returncode=EXIT_USAGE)

    # Reporting

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        result: CheckResult | None = getattr(report, "rackproof", None)
        if result is not None and result.outcome is CheckOutcome.UNMEASURED:
            return "unmeasured", "U", ("UNMEASURED", {"yellow": True})
        return None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._config.getoption("tbstyle") != "no":
            for report in terminalreporter.getreports("unmeasured"):
                terminalreporter.write_sep("_", report.nodeid)
                terminalreporter.write_line(report.longreprtext)
        for problem in self._broken:
            terminalreporter.write_line(f"ERROR {problem}", red=True)
        for line, style in terminal.summary(self.results, self.context.selection.description):
            terminalreporter.write_line(line, **style)
        for line in self.context.reading():
            terminalreporter.write_line(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        option, context = self._config.option, self.context
        try:
            if option.record and not option.collectonly:
                recordings = [Recording(node, context.readers[node.name].used) for node in context.rack.nodes]
                write_recordings(Path(option.record), recordings)
            if option.rackproof_junit and not option.collectonly:
                limited, path = context.selection.description, Path(option.rackproof_junit)
                write_junit(path, self.results, context.rack.source, context.arch.metadata, limited)
        except RackproofError as error:
            self._abort(error)
        if self._broken:
            session.exitstatus = EXIT_USAGE
        elif exitstatus in _RAN_TO_THE_END and not option.collectonly:
            session.exitstatus = exit_status(self.results)


def _create(path: str) -> TextIO:
    try:
        return Path(path).open("w", encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}") from None


def _parameter(item: pytest.Item) -> object:
    return item.callspec.params.get(_CASE) if hasattr(item, "callspec") else None


def _case(item: pytest.Item) -> Case:
    case = _parameter(item)
    assert isinstance(case, Case)  # noqa: S101  (pytest_collection_modifyitems dropped the others)
    return case
