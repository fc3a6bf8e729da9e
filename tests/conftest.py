"""The rules of every test run: hypothesis profiles, test groups, no skipped tests, no empty groups, failures
that are named at once, and no process that outlives its test.

Shared fixtures are not here but in the folders of their tests.

SKEWGATE_NO_SKIP=1          a skipped test is a failure, and hypothesis uses the same examples in every run
SKEWGATE_EXAMPLES=12        examples of each law in CI, where the same tests run again on another build
SKEWGATE_GROUPS="quick ..." every group in this list must run at least one test
SKEWGATE_COMPILED=1         the tests are about the compiled build of these sources (`./run build`), which
                            must be there, and not about the sources; what they start is told the same.
                            By default about the sources, with the compiled matcher if that is there; 0:
                            without it
"""

from __future__ import annotations

import gc
import os
import signal
import uuid
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import hypothesis
import pytest

from gateway.runtime import compiled
from tests.kit import started_processes
from tests.kit.examples import WHOLE

if TYPE_CHECKING:
    from _pytest._code.code import ExceptionRepr
    from xdist.workermanage import WorkerController

MATCHER_OR_NOTHING: Final = compiled.NOTHING if compiled.matcher_build() is None else compiled.MATCHER_ONLY
if not os.environ.get(compiled.VARIABLE):
    os.environ[compiled.VARIABLE] = MATCHER_OR_NOTHING
compiled.use_compiled()  # before any test imports what it tests
compiled.require()
# Many tests start a gateway as a process. If it may not keep what it compiles, it compiles everything.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

HEAVY_GROUPS: Final = ("real", "engines", "packaging", "load", "fuzz", "browser")
"""Markers of the groups that `-m` in pyproject.toml excludes by default."""

GROUPS: Final = (*HEAVY_GROUPS, "processes")
"""Markers of all groups. A test without one is in `quick`. A test with two is in the heavy one."""

INTERPRETED: Final = "interpreted"
"""Marker of the tests that are about the interpreted build only; its text says why."""

HEAVY_TIMEOUT: Final = 1800.0
"""Seconds for one test of a heavy group. The first test of a group installs what the group needs."""

NO_SKIP: Final = os.environ.get("SKEWGATE_NO_SKIP") == "1"
REQUIRED_GROUPS: Final = tuple(os.environ.get("SKEWGATE_GROUPS", "").split())

IS_REPEATED: Final = "SKEWGATE_EXAMPLES" in os.environ
"""Whether the same tests have run on the main build before, with all examples."""
CI_EXAMPLES: Final = int(os.environ.get("SKEWGATE_EXAMPLES", WHOLE))

# No deadline: it would only measure how busy the machine is. Few examples at a desk, but others each
# time: `CI=1 ./test FILE` tries them all.
hypothesis.settings.register_profile("desk", deadline=None, max_examples=6)
hypothesis.settings.register_profile(
    "ci", deadline=None, max_examples=CI_EXAMPLES, derandomize=True, print_blob=True
)
IN_CI: Final = NO_SKIP or "CI" in os.environ
hypothesis.settings.load_profile("ci" if IN_CI else "desk")

GROUP: Final = "group"
"""The property of a report that names the group of its test."""

THRESHOLDS: Final = (20_000, 50, 1_000)
"""Of the collector of reference cycles. With Python's own it takes a tenth of the CPU, since it looks again
and again at what tests keep for long. Not those of a gateway's process, by which it knows that it is one."""

PASSED_AROUND: Final = {("setup", "passed"), ("teardown", "passed")}
"""Phase and outcome of the reports around a test that has passed."""

executed_key = pytest.StashKey[dict[str, int]]()
"""Executed tests by group."""

seconds_key = pytest.StashKey[dict[str, float]]()
"""What they took by group, without set-up and clean-up."""


def pytest_xdist_auto_num_workers() -> int:
    """Two for each core: about half of a test's time is spent waiting for a time-out. On the main build of CI
    one: there more time matters less than that nothing else runs at the same time. What has passed like that
    runs on other builds as it does at a desk."""
    return (os.cpu_count() or 1) * (1 if IN_CI and not IS_REPEATED else 2)


def group_of(item: pytest.Item) -> str:
    """The group of a test, by its marker. Its keywords would also contain the names of its folders."""
    names = {marker.name for marker in item.iter_markers()}
    return next((name for name in GROUPS if name in names), "quick")


@pytest.hookimpl(trylast=True)  # after the terminal has its plugin
def pytest_configure(config: pytest.Config) -> None:
    config.stash[executed_key] = {}
    config.stash[seconds_key] = {}
    config.pluginmanager.register(Counts(config))
    config.stash[processes_key] = Processes()
    config.pluginmanager.register(config.stash[processes_key])
    if terminal := config.pluginmanager.getplugin("terminalreporter"):
        config.stash[failures_key] = Failures(terminal)
        config.pluginmanager.register(config.stash[failures_key])
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            plugin.sendevent = partial(send_what_counts, plugin.sendevent)
    # Tests that a shell starts with `&` ignore SIGINT, and the programs that they start would inherit that.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def send_what_counts(send: Callable[..., None], event: str, **details: Any) -> None:
    """Send an event of a test from a worker of pytest-xdist to the main process, unless that does nothing
    with it: four of six say that a test begins or ends, and that its set-up and its clean-up passed. To send
    and receive them takes a twentieth of the CPU of the quick group."""
    report = details.get("data", {}) if event == "testreport" else {}
    if event in {"logstart", "logfinish"} or (report.get("when"), report.get("outcome")) in PASSED_AROUND:
        return
    send(event, **details)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: no search for garbage shall look at it, now or in a test. The
    little garbage among it stays too, because to find it takes longer than most tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if compiled.is_compiled():
        # Not skipped: they say nothing about this build.
        others = [item for item in items if item.get_closest_marker(INTERPRETED)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    for item in items:
        if group_of(item) in HEAVY_GROUPS and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HEAVY_TIMEOUT))


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure with the reason of the skip. An expected failure is not a skip."""
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, but no test may be skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_skip(report)
    # A report may be made in one process and counted in another (pytest-xdist).
    report.user_properties.append((GROUP, group_of(item)))
    return report


@final
class Counts:
    """Counts the reports of all processes by group."""

    def __init__(self, config: pytest.Config) -> None:
        self._executed, self._seconds = config.stash[executed_key], config.stash[seconds_key]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        group = next((str(value) for name, value in report.user_properties if name == GROUP), "")
        if report.when == "call" and not report.skipped:
            self._seconds[group] = self._seconds.get(group, 0.0) + report.duration
            self._executed[group] = self._executed.get(group, 0) + 1


@final
class Failures:
    """Prints the id of each failed test at once, and of each worker of pytest-xdist that dies.

    A run that is cut off has named what failed until then."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal
        self.workers: list[str] = []
        """Workers that have died, with the reason."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(f"FAILED {report.nodeid} ({report.when})")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController, error: object | None) -> None:
        if error:
            self.workers.append(f"worker {node.gateway.id} died: {error}")
            self._say(f"FAILED {self.workers[-1]}")

    def _say(self, text: str) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(text, red=True)
        self._terminal.flush()


@final
class Processes:
    """Ends what tests have started: each test's with the test, all of a worker's with the worker."""

    def __init__(self) -> None:
        # pytest-xdist names the run and the worker in variables of the worker.
        self._run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
        self._mark = started_processes.mark(self._run, os.environ.get("PYTEST_XDIST_WORKER", "master"))
        self._known = started_processes.running()
        self.left: list[str] = []
        """Texts about the processes that were ended here; a worker sends them to the main process."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        # Not before: the main process of pytest-xdist runs no test, and what it starts are the workers.
        os.environ[started_processes.MARK] = self._mark
        result = yield
        running = started_processes.running()
        if new := running - self._known:
            found = started_processes.started(self._mark, new)
            self._end(each for each in found if each.in_call and each.test == item.nodeid)
            self._known = running
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController, error: object | None) -> None:
        self.left += getattr(node, "workeroutput", {}).get(LEFT, ())
        run = node.workerinput["testrunuid"]
        self._end(started_processes.started(started_processes.mark(run, node.gateway.id)))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._end(started_processes.started(self._mark))
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[LEFT] = self.left

    def _end(self, processes: Iterator[started_processes.Started]) -> None:
        self.left += map(str, started_processes.end(processes))


failures_key = pytest.StashKey[Failures]()
processes_key = pytest.StashKey[Processes]()

LEFT: Final = "left_processes"
"""The name under which a worker of pytest-xdist sends `Processes.left` to the main process."""


@pytest.hookimpl(tryfirst=True)
def pytest_internalerror(excrepr: ExceptionRepr) -> None:
    """Name the test in which pytest itself failed: pytest-xdist ends the whole run then, and does not."""
    excrepr.addsection("The test that was running", os.environ.get("PYTEST_CURRENT_TEST", "none"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_skip(report)
    return report


def empty_groups(config: pytest.Config) -> list[str]:
    """The required groups of which no test was executed."""
    if config.getoption("collectonly"):
        return []
    return [name for name in REQUIRED_GROUPS if not config.stash[executed_key].get(name)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    failures = session.config.stash.get(failures_key, None)
    if failures is not None and failures.workers and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if empty_groups(session.config):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, number in config.stash[executed_key].items():
        terminalreporter.write_line(f"group {name}: {number} tests, {config.stash[seconds_key][name]:.0f} s")
    for text in config.stash[processes_key].left:
        terminalreporter.write_line(f"ended: {text}", yellow=True)
    for text in config.stash[failures_key].workers:
        terminalreporter.write_line(f"FAILED {text}", red=True)
    for name in empty_groups(config):
        terminalreporter.write_line(f"FAILED group {name}: none of its tests was executed", red=True)
