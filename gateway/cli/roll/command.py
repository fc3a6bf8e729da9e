"""The verb `roll`: carries out the plan of a rolling upgrade, one member after the other, and reports it.

    drain -> idle -> command -> fresh probe -> enable -> gate -> journal

A gateway that is replaced meanwhile is asked again. Whatever fails, the member stays drained, and the journal
says so.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import which
from time import gmtime, strftime
from typing import Any, Final, TextIO, final

import click

from gateway.cli import admin_client
from gateway.cli.admin_client import AdminClient, AdminOptions
from gateway.cli.command import file_option, usage_error, verb
from gateway.cli.operator_commands import BackendName, offer_line, service_argument
from gateway.cli.roll.gate import Counts, GateResult, Limits, judge, since
from gateway.cli.roll.plan import Planned, make_plan
from gateway.cli.roll.progress import FAILED, UPGRADED, Progress, locked, read_progress
from gateway.cli.usage import shown_client
from gateway.cli.wait import PAUSE, MistakeError, read_timeout, timeout_option, until_holds
from gateway.core.fleet.drains import ROLL
from gateway.errors import AdminError, TokenError
from gateway.runtime.terminal import counted, plain, span

TICK: Final = 5.0
"""Seconds between two looks at a member in the gate: for each, every replica probes its backends."""
LAST: Final = 5.0
"""Seconds that it waits for counts when a step has failed: replicas tell theirs with each beat."""
REPLACED: Final = 503
"""Status of commands to a gateway while another takes over from it."""


def _gate_option(name: str, kind: Any, default: object, text: str) -> Callable[..., Any]:  # noqa: ANN401
    """Return one option of the gate, with its default."""
    metavar = "NUMBER" if name else "DURATION"
    return click.option(
        f"--gate{name}", metavar=metavar, type=kind, default=default, show_default=True, help=text
    )


def _read_command(text: str) -> Sequence[str]:
    """Split a command into words. Raises `ValueError` if it is none."""
    words = shlex.split(text)
    if not words or ("{" not in words[0] and which(words[0]) is None):
        raise ValueError(f"{text!r} is no command: {words[0] if words else 'it'} is not found")
    return words


_command_option: Final = partial(click.option, metavar="COMMAND", type=_read_command)


@verb(
    "roll",
    "For each member of the service, the oldest version first: drain it, wait until it is idle, run the "
    "command, wait until it answers a probe that was sent after that, enable it, and judge it by requests. "
    "A step that fails ends it with exit code 1, and leaves the member drained; run again, it goes on "
    "there.\n\nIn the command, {name} and {url} stand for the member. It is run without a shell. Another "
    "--exec is another pass over all members, and the --before at the same place belongs to it.",
)
@admin_client.options
@service_argument
@_command_option("--exec", "commands", required=True, multiple=True, help="command that upgrades a member")
@click.option("--expect", metavar="VERSION", help="version that each member must serve after the last pass")
@_command_option("--before", multiple=True, help="command that is run once, before the first member")
@_command_option("--after", help="command that is run once, after the last member")
@timeout_option("10m", "maximum time of each wait")
@_gate_option("", read_timeout, "60s", "time for which a member is judged: no request lost, no ejection")
@_gate_option("-requests", click.IntRange(1), Limits().requests, "fewer say nothing about 5xx, and pass")
@_gate_option("-points", click.FloatRange(0), Limits().points, "percentage points of 5xx above the others")
@click.option("--allow-unserved", is_flag=True, help="also drain the last member that serves a version")
@click.option(
    "--adopt", metavar="ID", help="go on with the drains of a roll whose journal is lost, or undone"
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="print what it would do, where it would stop, and which clients will notice",
)
@file_option("--journal", "progress", text="what is done; default: the report's name with .json")
@file_option("--report", text="file for the report, in Markdown")
def roll(
    *,
    where: AdminOptions,
    service: str,
    adopt: str | None,
    dry_run: bool,
    progress: Path | None,
    report: Path | None,
    gate: float,
    gate_requests: int,
    gate_points: float,
    **options: Any,  # noqa: ANN401 - those of `_Roll`
) -> int:
    """Upgrade all members of a service. Raises `AdminError`."""
    if len(options["before"]) > len(options["commands"]):
        usage_error("each --before needs an --exec of its own")
    if "" in {each.name for each in (progress, report) if each is not None}:
        usage_error("--journal and --report need the name of a file")
    path = progress or (report or Path(f"roll-{service}.md")).with_suffix(".json")
    if path == report:
        usage_error("give the journal another name than the report")
    limits = Limits(gate, gate_requests, gate_points)
    admin = admin_client.find(where)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not for `nohup`
            with suppress(ValueError):  # not the main thread: a test
                signal.signal(number, signal.default_int_handler)  # a stop in order, as by Ctrl-C
    if service not in admin.status()["services"]:  # without a retry: there may be no gateway
        usage_error(f"there is no service {service!r}")
    if (expect := options["expect"]) is not None:
        try:
            until_holds(admin, service, [("offer", expect)], 0)
        except MistakeError as mistake:
            usage_error(str(mistake))
    try:
        with nullcontext() if dry_run else locked(path):
            found = read_progress(path, service, options["commands"])
            found.id, found.skipped = adopt or found.id, []
            one = _Roll(admin, found, path, report, limits, dry_run, **options)
            return one.show() if dry_run else one.run()
    except AdminError as problem:
        _print_error(str(problem))
        return 1


@final
@dataclass
class _Roll:
    """One run of a rolling upgrade, with the options of the verb."""

    admin: AdminClient
    progress: Progress
    path: Path
    report: Path | None
    limits: Limits
    dry_run: bool
    """Whether nothing is done: neither a command is run nor anything written."""
    commands: Sequence[Sequence[str]]
    """One for each pass over all members."""
    before: Sequence[Sequence[str]]
    after: Sequence[str] | None
    expect: str | None
    timeout: float
    allow_unserved: bool
    service: dict[str, Any] = field(default_factory=dict)
    """The service in the status that was read last."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """What the process of each replica has counted to judge a member, as it was last told; None: not yet."""
    member: str = ""
    """Member that is upgraded now."""

    @property
    def by(self) -> str:
        """Name that this upgrade gives to its drains."""
        return f"{ROLL}{self.progress.id}"

    def show(self) -> int:
        """Print what `run` would do, where it would stop, and which clients will notice the upgrade."""
        self._passes()
        usage, doubt = self._usage()
        rows = (row for row in usage if row["requested"] == "latest")
        names = sorted({f"{shown_client(row)} ({row['requests']})" for row in rows})
        whom = ", ".join(names) or "nobody, as far as is known"
        _print(f"a higher maximum changes `latest` for (requests): {whom}")
        if doubt:
            _print(f"clients may be missing: {doubt}")
        return 0

    def run(self) -> int:
        """Upgrade every member in each pass, and return the exit code."""
        progress, refused = self.progress, self._refused()
        progress.write(self.path, self.report)  # rather now than when a member is drained
        try:
            self._passes()
            self._refresh()
            progress.complete = not progress.skipped
        except (AdminError, KeyboardInterrupt, OSError) as problem:  # its output may be a full disk or closed
            self._advise(self.member, str(problem) or "interrupted")
            return 1
        finally:
            progress.refused = dict(Counter(progress.refused) + (self._refused() - refused))
            progress.write(self.path, self.report)
        _print(offer_line({"services": {progress.service: self.service}}, progress.service))
        members, lost = counted(len(progress.members(UPGRADED)), "member"), counted(progress.lost, "request")
        _print(f"{members} upgraded, {lost} lost; see {self.report or self.path}")
        return int(not progress.complete)

    def _passes(self) -> None:
        """Carry out all passes, and --after, unless members were skipped. Raises `AdminError`."""
        while self.progress.passes < len(self.commands) and not self.progress.skipped:
            self._pass()
        if self.progress.skipped:
            _print_error("warning: this is not complete: run it again when all can be upgraded")
        elif self.after:
            self._execute(self.after)

    def _pass(self) -> None:
        """Upgrade every member that is left in this pass. Raises `AdminError`."""
        progress, members = self.progress, self._plan()
        names = ", ".join(each.name for each in members) or "no member"
        which = f", pass {progress.passes + 1} of {len(self.commands)}" * (len(self.commands) > 1)
        _print(f"{'dry run' if self.dry_run else self.by}{which}: {names}")
        if problem := (self.service.get("skew") or {}).get("problem"):
            _print_error(f"warning: {problem}")
        if progress.passes < len(self.before) and not progress.prepared:
            self._execute(self.before[progress.passes])
        progress.prepared = True
        for left in self._before_each(members):
            done, self.member = len(progress.finished), left[0].name
            title = f"[{done + 1}/{done + len(left)}] {self.member}"
            _print(f"{title} ({left[0].range}): drain")
            if self.dry_run:
                self._foresee(left[0])
            else:
                self._member(left[0], title)
            self.member = ""
        if not progress.skipped:
            progress.passes, progress.prepared = progress.passes + 1, False

    def _before_each(self, members: Sequence[Planned]) -> Iterator[Sequence[Planned]]:
        """Return what is left before each member, planned anew unless nothing is done that changes it."""
        if self.dry_run:
            yield from (members[number:] for number in range(len(members)))
        else:
            while members := self._plan():
                yield members

    def _plan(self) -> Sequence[Planned]:
        """Plan what is left of the present pass. Raises `AdminError` if another upgrade is under way."""
        self._refresh()
        for name, each in self.service["backends"].items():
            by = each.get("drained_by", "")
            if by.startswith(ROLL) and by != self.by:
                how = f"if it has ended, add --adopt {by.removeprefix(ROLL)}"
                raise AdminError(f"{by} has drained {name}; {how}")
        members, skipped = make_plan(self.service, self.progress.finished, self.by)
        for name in skipped:
            if name not in self.progress.skipped:
                by = self.service["backends"][name].get("drained_by") or "somebody else"
                _print_error(f"warning: {name} is skipped: {by} has drained it")
        self.progress.skipped = skipped
        return members

    def _foresee(self, member: Planned) -> None:
        """Print what will happen to a member, which then counts as upgraded."""
        if alone := self.service["served_alone"].get(member.name):
            effect = "503 meanwhile" if self.allow_unserved else "it stops here"
            _print(f"  no other member that is up serves {alone} now: {effect}")
        self._execute(member.words(self.commands[self.progress.passes]))
        step = {"pass": self.progress.passes + 1, "member": member.name, "result": UPGRADED}
        self.progress.steps.append(step)

    def _advise(self, name: str, problem: str) -> None:
        """Print what has failed, and what to do."""
        _print_error(f"{name or 'roll'} failed: {problem}")
        if name:
            found = self.service["backends"].get(name, {"drained": None})["drained"]
            stays = {None: "is not configured now", True: "stays drained", False: "is in service"}[found]
            _print_error(f"{name} {stays}; finished: {', '.join(self.progress.finished) or 'none'}")
        _print_error("next: mend the cause, and run the same command again: it goes on there")
        if new := ", ".join(self.progress.members(UPGRADED, FAILED)):
            _print_error(
                "to go back: `skewgate pin` the old maximum if the offer has risen; then `roll` out the old "
                f"release, with another --journal and --adopt {self.progress.id}; the new one may be on {new}"
            )

    def _member(self, member: Planned, title: str) -> None:
        """Upgrade one member. Raises `AdminError`."""
        progress, name = self.progress, member.name
        progress.write(self.path)
        began, result, judged = time.monotonic(), "not begun", GateResult("-")
        self._wait(name, "evidence")
        before = dict(self.evidence)
        try:
            self._order("drain", name)
            self._wait(name, "drained")
            result = FAILED
            self._execute(member.words(self.commands[progress.passes]))
            expect = self.expect if progress.passes + 1 == len(self.commands) else None
            _print(f"{title}: wait until it {f'serves {expect}' if expect else 'answers'}")
            self._wait(name, "serves" if expect else "answers", expect or "")
            if not self.service["backends"][name]["drained"]:
                _print_error(
                    f"warning: {name} was enabled meanwhile; a gateway without `state` forgets drains"
                )
            self._order("enable", name)
            _print(f"{title}: enabled, judged for {self.limits.seconds:g} s")
            judged = self._gate(name)
            if not judged.passes:
                with suppress(AdminError):  # by now it may be the last one that serves a version
                    self._order("drain", name)
                raise AdminError(f"gate: {judged.text}")
            result = UPGRADED
            _print(f"{title}: {result}; gate: {judged.text}")
        except BaseException:
            self.timeout = 0  # what follows tells what is known, and waits for hardly anything
            raise
        finally:
            counts: Counts | None = None
            try:
                with suppress(AdminError):
                    self._refresh()
                    self.timeout = self.timeout or LAST
                    self._wait(name, "evidence")
                    counts = since(before, self.evidence)
            finally:  # also if somebody does not wait for that
                offer, backend = self.service["offer"], self.service["backends"].get(name, {})
                step = {
                    "pass": progress.passes + 1,
                    "member": name,
                    "before": member.range,
                    "after": span(backend.get("min"), backend.get("max"), "no version"),
                    "seconds": round(time.monotonic() - began),
                    "result": result,
                    "gate": judged.text if counts is not None else f"{judged.text}, lost: unknown",
                    "offer": span(offer["min"], offer["max"]),
                    "held": f"{offer['held_rule'] or ''} {', '.join(offer['held_by'])}".strip(),
                    "lost": counts.lost if counts else 0,
                    "ended": strftime("%H:%M:%S", gmtime()),
                }
                progress.steps.append(step)
                progress.write(self.path)

    def _gate(self, name: str) -> GateResult:
        """Judge a member by what all replicas count from now on."""
        self._wait(name, "evidence")
        before, end = dict(self.evidence), time.monotonic() + self.limits.seconds
        while True:
            is_over = time.monotonic() >= end
            found = self._wait(name, "evidence")["evidence"]
            if trouble := "; ".join(filter(None, (each["trouble"] for each in found.values()))):
                return GateResult(trouble)
            judged = judge(counts := since(before, self.evidence), self.limits)
            if counts.lost or is_over:
                return judged
            time.sleep(min(TICK, max(0.0, end - time.monotonic())))

    def _wait(self, name: str, condition: str, value: str = "") -> dict[str, Any]:
        query = [("backend", name), (condition, value)]
        state, waits_for = until_holds(self.admin, self.progress.service, query, self.timeout, patient=True)
        if state is None:
            raise AdminError("; ".join(waits_for))
        self._read(state)
        known = dict.fromkeys(each["id"] for each in (state.get("agreement") or {}).get("replicas", ()))
        # Those of a process that has ended stay.
        self.evidence = known | self.evidence | state.get("evidence", {})
        return state

    def _usage(self) -> tuple[Sequence[dict[str, Any]], str]:
        """Return usage by client, and why some may be missing."""
        try:
            query = [("service", self.progress.service), ("by", "client")]
            found = self.admin.document("/usage", query)
        except AdminError as problem:
            return (), str(problem)
        return found["rows"], "; ".join(found["incomplete"])

    def _refused(self) -> Counter[str]:
        found: Counter[str] = Counter()
        rows, self.progress.doubt = self._usage()
        for row in rows:
            found[shown_client(row)] += row["refused"]
        return found

    def _refresh(self) -> None:
        self._read(self._send("GET", "/status"))

    def _read(self, state: dict[str, Any]) -> None:
        services = state["services"]
        if self.progress.service not in services:
            raise AdminError("the service was removed from the configuration")
        self.service = services[self.progress.service]

    def _order(self, command: str, name: str) -> None:
        """Drain a member, unless it is the last one that serves a version, or enable it."""
        query = [("by", self.by), *[("served", "")] * (command == "drain" and not self.allow_unserved)]
        self._read(self._send("POST", BackendName(self.progress.service, name).path(command), query))

    def _send(self, method: str, path: str, query: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Send a request, again and again while the gateway is being replaced: all are idempotent."""
        end = time.monotonic() + self.timeout
        while True:
            try:
                status, body = self.admin.request(method, path, query)
            except AdminError as problem:
                if isinstance(problem, TokenError) or time.monotonic() >= end:
                    raise
            else:
                if status != REPLACED or time.monotonic() >= end:
                    return admin_client.document_of(self.admin.url, path, status, body)
            time.sleep(PAUSE)

    def _execute(self, words: Sequence[str]) -> None:
        """Run a command, with the output of this process. Raises `AdminError` if it fails."""
        _print(f"$ {shlex.join(words)}")
        if self.dry_run:
            return
        try:
            with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:  # noqa: S603
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    process.terminate()  # Ctrl-C has reached it, too; other signals have not
                    process.wait()
                    raise
        except OSError as problem:
            raise AdminError(f"the command cannot be started: {problem.strerror}") from None
        if code:
            raise AdminError(f"the command ended with {code}")


def _print(text: str, *, to: TextIO | None = None) -> None:
    """Print a text on lines of at most 80 columns, unless a word of it is longer."""
    lines = textwrap.TextWrapper(
        80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).wrap(plain(text))
    print(*lines, sep="\n", file=to, flush=True)


def _print_error(text: str) -> None:
    """Print a text on standard error, after the program's name."""
    _print(f"skewgate: {text}", to=sys.stderr)
