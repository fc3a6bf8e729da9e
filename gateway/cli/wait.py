"""The verbs `wait` and `drain`: return when a condition holds on every live replica, by probes sent since.

The gateway judges, and answers as soon as the condition holds (`admin.waiting`). A gateway that is replaced
meanwhile is asked again. `skewgate roll` waits in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Any, Final
from urllib.parse import quote

import click

from gateway.cli import admin_client
from gateway.cli.admin_client import AdminClient, AdminOptions
from gateway.cli.command import seconds, usage_error, verb
from gateway.cli.operator_commands import (
    BackendName,
    State,
    backend_argument,
    backend_line,
    offer_line,
    options,
    print_state,
    send,
    service_argument,
)
from gateway.errors import AdminError, TextRefused, TokenError
from gateway.keys.texts import read_duration
from gateway.runtime.terminal import plain, print_error, span

PAUSE: Final = 0.5
"""Seconds until a gateway that did not respond is asked again."""
LONGEST: Final = 5
"""Seconds for which one request waits. The gateway answers sooner when the condition holds."""
MISTAKES: Final = frozenset({400, 404})
"""Statuses for a condition that can never hold: an unknown service or backend, or a wrong version."""

Query = Sequence[tuple[str, str]]


class MistakeError(AdminError):
    """Error: the condition can never hold."""


def read_timeout(text: str) -> float:
    """Read a duration of the command line. Raises `ValueError`."""
    try:
        return read_duration(text)
    except TextRefused:
        raise ValueError("must be a duration, such as 90s, 10m or 1h") from None


def timeout_option(default: str, text: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Add `--timeout`, a duration that is given in seconds."""
    return click.option(
        "--timeout", metavar="DURATION", type=read_timeout, default=default, show_default=True, help=text
    )


@verb(
    "wait",
    "Give --offer, --phase or --backend; all that are given must hold, by probes that were sent after this "
    "began. When the time is over it prints what it still waits for, and the exit "
    "code is 1.",
)
@options
@service_argument
@click.option("--offer", metavar="VERSION", help="the version is offered")
@click.option("--phase", metavar="PHASE", help="the upgrade is in this phase: `uniform` is its end")
@click.option("--backend", metavar="BACKEND", help="the backend answers; or see --serves, --drained")
@click.option("--serves", metavar="VERSION", help="the backend serves the version")
@click.option("--drained", is_flag=True, help="the backend is drained and has no request in flight")
@timeout_option("10m", "maximum time, as `90s` or `10m`")
def wait(
    *,
    where: AdminOptions,
    output: str,
    service: str,
    backend: str | None,
    drained: bool,
    timeout: float,
    **versions: str | None,
) -> int:
    """Wait until a condition holds on every live replica."""
    given = [(name, text) for name, text in versions.items() if text is not None]
    if backend is None and (drained or versions["serves"] is not None):
        usage_error("--serves and --drained need --backend")
    query = [*given, *[("drained", "")] * drained]
    if backend is not None:
        query += [("backend", backend), *[("answers", "")] * (not drained)]
    if not query:
        usage_error("give --offer, --phase or --backend")
    admin = admin_client.find(where)
    try:
        state, waits_for = until_holds(admin, service, query, timeout)
    except MistakeError as mistake:
        usage_error(str(mistake))
    if state is None:
        print_error(f"{service}: the time is over, and it still waits: {plain('; '.join(waits_for))}")
        return 1
    print_state(output, admin, state, lambda: _line(state, service, backend))
    return 0


def until_holds(
    admin: AdminClient, service: str, query: Query, timeout: float, *, patient: bool = False
) -> tuple[dict[str, Any] | None, Sequence[str]]:
    """Wait until the conditions in `query` hold. Returns the state then; None: the time is over, and what it
    still waits for. Raises `AdminError` if they never can or, unless `patient`,
    if no gateway responds at first."""
    end, asked, waits_for = time.monotonic() + timeout, "", ["for a first answer of the gateway"]
    while True:
        try:
            # The first answer comes at once: from then on a gateway that does not respond is being replaced.
            most = min(LONGEST, max(0, ceil(end - time.monotonic()))) if asked else 0
            answer = _request(admin, service, [*query, ("asked", asked), ("seconds", str(most))])
        except (MistakeError, TokenError):
            raise
        except AdminError as problem:
            if not (asked or patient):
                raise
            waits_for = [str(problem)]
            time.sleep(PAUSE)
        else:
            if answer["holds"]:
                return admin_client.require_state(admin.url, answer["status"]), ()
            asked, waits_for = str(answer["asked"]), [str(each) for each in answer["waits_for"]]
        if time.monotonic() >= end:
            return None, waits_for


def _request(admin: AdminClient, service: str, query: Query) -> dict[str, Any]:
    path = f"/services/{quote(service, safe='')}/wait"
    status, body = admin.request("POST", path, query)
    try:
        answer = admin_client.document_of(admin.url, path, status, body)
    except AdminError as problem:
        if status in MISTAKES:
            raise MistakeError(str(problem)) from None
        raise
    if not {"holds", "asked", "waits_for"} <= answer.keys():
        raise AdminError(admin_client.NO_GATEWAY.format(url=admin.url))
    return answer


def _line(state: dict[str, Any], service: str, backend: str | None) -> str:
    if backend is None:
        return offer_line(state, service)
    found = state["services"][service]["backends"][backend]
    drained = ", drained" if found["drained"] else ""
    return f"{service}/{backend}: serves {span(found['min'], found['max'])}{drained}"


@verb("drain")
@options
@backend_argument
@click.option("--wait", "waits", is_flag=True, help="wait until no request is in flight at the backend")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=seconds(0, 86_400),
    help="with --wait: maximum time, then exit code 1; the backend stays drained",
)
@click.option(
    "--by",
    metavar="NAME",
    default="",
    help="who drains it; keeps others with a name away, a roll from this backend only",
)
def drain(
    *, where: AdminOptions, output: str, target: BackendName, waits: bool, timeout: float | None, by: str
) -> int:
    """Drain the backend, and with `--wait` wait until no request of any live replica is in flight there."""
    if timeout is not None and not waits:
        usage_error("--timeout needs --wait")
    admin = admin_client.find(where)
    state: State = send(admin, "POST", target.path("drain"), query=[("by", by)])
    if waits:
        state = _until_idle(admin, target, inf if timeout is None else timeout)
    print_state(output, admin, state, lambda: backend_line(state, target))
    return 0


def _until_idle(admin: AdminClient, target: BackendName, timeout: float) -> State:
    """Wait until a drained backend is idle, and return the state. Raises `AdminError` at the timeout, and
    some seconds after the backend is enabled or the gateway ends."""
    end, query = time.monotonic() + timeout, [("backend", target.backend), ("drained", "")]
    while True:
        most = min(LONGEST, max(0.0, end - time.monotonic()))
        idle, waits_for = until_holds(admin, target.service, query, most)
        state = idle or admin.status()
        service = state["services"].get(target.service, {})
        if not service.get("backends", {}).get(target.backend, {}).get("drained"):
            raise AdminError(f"{target} was enabled or removed while waiting")
        if idle:
            break
        if time.monotonic() >= end:
            raise AdminError(f"{backend_line(state, target)}, and it still waits: {'; '.join(waits_for)}")
    if away := service.get("agreement", {}).get("away"):
        print_error(f"warning: detached replicas may still use {target}: {plain(', '.join(map(str, away)))}")
    return state
