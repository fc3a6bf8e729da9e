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
from collections.abc import Callable, Sequence
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
from gateway.cli.roll.progress import Progress, locked, read_progress
from gateway.cli.usage import shown_client
from gateway.cli.wait import PAUSE, MistakeError, read_timeout, timeout_option, until_holds
from gateway.errors import AdminError, TokenError
from gateway.runtime.terminal import plain, span

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
@click.option("--dry-run", is_flag=True, help="print the plan, and which clients will notice")
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
    **options: Any,  # noqa: ANN401 - those of `_Options`
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
    if expect := options["expect"]:
        try:
            until_holds(admin, service, [("offer", expect)], 0)
        except MistakeError as mistake:
            usage_error(str(mistake))
    try:
        with nullcontext() if dry_run else locked(path):
            found = read_progress(path, service, options["commands"])
            found.id = adopt or found.id
            one = _Roll(admin, found, path, report, limits, **options)
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
    """What the process of each replica has counted to judge a member, as it was last told."""
    printed: set[str] = field(default_factory=set)
    """Warnings that were printed."""
    member: str = ""
    """Member that is upgraded now."""
    touched: str = ""
    """Member for which the command was run last."""

    @property
    def by(self) -> str:
        """Name that this upgrade gives to its drains."""
        return f"roll {self.progress.id}"

    def _plan(self) -> Sequence[Planned]:
        """Plan what is left of the present pass, and print new warnings. Raises `AdminError` if another
        upgrade is under way."""
        self._refresh()
        for name, each in self.service["backends"].items():
            if (by := each.get("drained_by", self.by)) != self.by:
                how = f"; if it has ended, add --adopt {by.removeprefix('roll ')}" * by.startswith("roll ")
                raise AdminError(f"{by} has drained {name}{how}")
        members, skipped = make_plan(self.service, self.progress.finished, self.by)
        warnings = [f"{name} is skipped: somebody else has drained it" for name in skipped]
        if problem := (self.service.get("skew") or {}).get("problem"):
            warnings.append(problem)
        for text in warnings:
            if text not in self.printed:
                _print_error(f"warning: {text}")
                self.printed.add(text)
        self.progress.skipped = skipped
        return members

    def _leaves_out(self) -> bool:
        """Whether a pass or --after is left out because members were skipped. Prints it."""
        more = self.after or self.progress.passes + 1 < len(self.commands)
        if self.progress.skipped and more:
            _print_error("warning: the rest is left out: run this again when all can be upgraded")
        return bool(self.progress.skipped and more)

    def _print_pass(self, number: int, members: Sequence[Planned]) -> None:
        which = f", pass {number + 1} of {len(self.commands)}" * (len(self.commands) > 1)
        _print(f"{self.by}{which}: {', '.join(each.name for each in members) or 'no member'}")

    def show(self) -> int:
        """Print the plan, where it would stop, and which clients will notice the upgrade."""
        members, progress = self._plan(), self.progress
        alone = self.service["served_alone"]
        for number in range(progress.passes, len(self.commands)):
            self._print_pass(number, members)
            if number < len(self.before) and not (progress.prepared and number == progress.passes):
                _print(f"once: {shlex.join(self.before[number])}")
            for at, each in enumerate(members):
                _print(f"{each.name} ({each.range}): {shlex.join(each.words(self.commands[number]))}")
                if (only := alone.get(each.name)) and self.allow_unserved:
                    _print(f"  no other member that is up serves {only}: 503 meanwhile")
                elif only:
                    unless = " unless one that was upgraded before it does" * (at > 0)
                    _print(f"  stops here{unless}: no other member that is up serves {only}")
            if progress.skipped:
                break
            members, alone = make_plan(self.service)[0], {}  # what later passes find is not known
        if not self._leaves_out() and self.after:
            _print(f"once, at the end: {shlex.join(self.after)}")
        usage, doubt = self._usage()
        rows = (row for row in usage if row["requested"] == "latest")
        names = sorted({f"{shown_client(row)} ({row['requests']})" for row in rows})
        whom = ", ".join(names) or "nobody, as far as is known"
        _print(f"a higher maximum changes `latest` for (requests): {whom}")
        if doubt:
            _print(f"clients may be missing: {doubt}")
        return 0

    def run(self) -> int:
        """Upgrade every member that is planned in each pass, and return the exit code."""
        progress, refused, left_out = self.progress, self._refused(), False
        progress.skipped = []
        progress.write(self.path, self.report)  # rather now than when a member is drained
        try:
            while progress.passes < len(self.commands) and not progress.skipped:
                self._pass(progress.passes)
            left_out = self._leaves_out()
            if self.after and not left_out:
                _execute(self.after)
                self._refresh()
            progress.complete = not progress.skipped
        except (AdminError, KeyboardInterrupt) as problem:
            self._advise(self.member, str(problem) or "interrupted")
            return 1
        finally:
            progress.refused = dict(Counter(progress.refused) + (self._refused() - refused))
            progress.write(self.path, self.report)
        _print(offer_line({"services": {progress.service: self.service}}, progress.service))
        members, lost = (
            f"{number} {what}{'s' * (number != 1)}"
            for number, what in ((len(progress.upgraded()), "member"), (progress.lost, "request"))
        )
        _print(f"{members} upgraded, {lost} lost; see {self.report or self.path}")
        return int(left_out)

    def _pass(self, number: int) -> None:
        """Upgrade every member that is left in this pass. Raises `AdminError`."""
        progress, members = self.progress, self._plan()
        self._print_pass(number, members)
        if number < len(self.before) and not progress.prepared:
            _execute(self.before[number])
        progress.prepared = True
        while members := self._plan():
            done, self.member = len(progress.finished), members[0].name
            self._member(members[0], f"[{done + 1}/{done + len(members)}] {self.member}")
            self.member = ""
        if not progress.skipped:
            progress.passes, progress.prepared = number + 1, False
            progress.write(self.path)

    def _advise(self, name: str, problem: str) -> None:
        """Print what has failed, and what to do."""
        _print_error(f"{name or 'roll'} failed: {problem}")
        if name:
            is_drained = self.service["backends"].get(name, {}).get("drained")
            stays = "stays drained" if is_drained else "is in service"
            _print_error(f"{name} {stays}; finished: {', '.join(self.progress.finished) or 'none'}")
        new = ", ".join(dict.fromkeys([*self.progress.upgraded(), *[self.touched] * bool(self.touched)]))
        _print_error("next: mend the cause, and run the same command again: it goes on there")
        _print_error(
            "to go back: `skewgate pin` the old maximum if the offer has risen; then `roll` out the "
            f"old release, with another --journal and --adopt {self.progress.id}; new is {new or 'none'}"
        )

    def _member(self, member: Planned, title: str) -> None:
        """Upgrade one member. Raises `AdminError`."""
        progress, name = self.progress, member.name
        began, result, judged = time.monotonic(), "failed", GateResult("-")
        self._wait(name, "evidence")
        before = dict(self.evidence)
        try:
            _print(f"{title} ({member.range}): drain")
            self._drain(name)
            self._wait(name, "drained")
            self.touched = name
            _execute(member.words(self.commands[progress.passes]))
            expect = self.expect if progress.passes + 1 == len(self.commands) else None
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
                    self._drain(name)
                raise AdminError(f"gate: {judged.text}")
            result = "upgraded"
            _print(f"{title}: {result}; {judged.text}")
        except BaseException:
            self.timeout = 0  # what follows tells what is known, and waits for hardly anything
            raise
        finally:
            counts: Counts | None = None
            with suppress(AdminError):
                self._refresh()
                self.timeout = self.timeout or LAST
                self._wait(name, "evidence")
                counts = since(before, self.evidence)
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

    def _drain(self, name: str) -> None:
        """Drain a member, unless it is the last one that serves a version. Raises `AdminError`."""
        self._order("drain", name, [] if self.allow_unserved else [("served", "")])

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
        self.evidence |= state.get("evidence", {})  # those of a process that has ended stay
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
        self._read(self._document("GET", "/status"))

    def _read(self, state: dict[str, Any]) -> None:
        services = state["services"]
        if self.progress.service not in services:
            raise AdminError("the service was removed from the configuration")
        self.service = services[self.progress.service]

    def _order(self, command: str, name: str, query: Sequence[tuple[str, str]] = ()) -> None:
        path = BackendName(self.progress.service, name).path(command)
        self._read(self._document("POST", path, [*query, ("by", self.by)]))

    def _document(self, method: str, path: str, query: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        return admin_client.document_of(self.admin.url, path, *self._send(method, path, query))

    def _send(self, method: str, path: str, query: Sequence[tuple[str, str]] = ()) -> tuple[int, bytes]:
        """Send a request, again and again while the gateway is being replaced: all are idempotent."""
        end = time.monotonic() + self.timeout
        while True:
            try:
                status, body = self.admin.request(method, path, query)
                if status != REPLACED or time.monotonic() >= end:
                    return status, body
            except AdminError as problem:
                if isinstance(problem, TokenError) or time.monotonic() >= end:
                    raise
            time.sleep(PAUSE)


def _print(text: str, *, to: TextIO | None = None) -> None:
    """Print a text on lines of at most 80 columns, unless a word of it is longer."""
    lines = textwrap.TextWrapper(
        80, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ).wrap(plain(text))
    print(*lines, sep="\n", file=to, flush=True)


def _print_error(text: str) -> None:
    """Print a text on standard error, after the program's name."""
    _print(f"skewgate: {text}", to=sys.stderr)


def _execute(words: Sequence[str]) -> None:
    """Run a command, with the output of this process. Raises `AdminError` if it fails."""
    _print(f"$ {shlex.join(words)}")
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
