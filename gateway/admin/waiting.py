"""`POST /services/NAME/wait`: responds when a condition holds on every live replica, or after some seconds.

A condition holds only by probes that were sent after the first request of a wait: see
`controlplane.fresh_facts`. Its response has the name of the question, `asked`, which further requests repeat.
A gateway that does not know it, because it has just started, asks anew.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from aiohttp import web

from gateway.admin.commands import member_of, pending_for, read_ceiling, view_of
from gateway.admin.context import AdminContext
from gateway.admin.responses import json_response
from gateway.admin.status_document import status_document
from gateway.admin.ui.page_responses import read_query
from gateway.controlplane.sight import Sight
from gateway.controlplane.stores.store import StoreError
from gateway.core.fleet.offer import Phase
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.version import Version

WAIT: Final = 5.0
"""Seconds after which a condition that does not hold is answered: a stopping gateway waits for no handler."""
CHECK: Final = 0.2
"""Seconds between two checks without a change of the snapshot: requests in flight and other replicas make
none."""
REPEAT: Final = 1.0
"""Seconds after which backends that have not answered are probed again."""
UNCONFIRMED: Final = ("not every worker and replica has acknowledged yet",)
_OF_BACKEND: Final = ("answers", "serves", "drained", "evidence")
PARAMETERS: Final = ("offer", "phase", "backend", *_OF_BACKEND, "asked", "seconds")


@final
class Wanted(NamedTuple):
    """Conditions that an operator waits for: all that are given must hold."""

    offer: Version | None = None
    """Version that must be on offer."""
    phase: str | None = None
    backend: str | None = None
    answers: bool = False
    """Whether `backend` must answer a probe."""
    serves: Version | None = None
    """Version that `backend` must serve."""
    drained: bool = False
    """Whether `backend` must be drained, with no request in flight."""
    judged: str = ""
    """Name of `backend` if every replica must have told the evidence to judge it; empty: it need not."""


def add_wait_route(router: web.UrlDispatcher, context: AdminContext) -> None:
    """Adds the endpoint that waits for a condition."""

    async def respond(request: web.Request) -> web.StreamResponse:
        await request.read()
        service = request.match_info["service"]
        query = read_query(request, PARAMETERS)
        wanted = _read_wanted(view_of(context, service), query)
        seconds = query.get("seconds", f"{WAIT:g}")
        if not re.fullmatch("[0-9]{1,9}", seconds):
            raise web.HTTPBadRequest(text="`seconds` must be a whole number")
        wait = _Wait(context, service, wanted, query.get("asked", ""))
        return json_response(await wait.ended(min(float(seconds), WAIT)))

    router.add_post("/services/{service}/wait", respond)


def _read_wanted(view: ServiceView, query: Mapping[str, str]) -> Wanted:
    """Reads conditions from a query. Raises 400 and 404."""
    phase, backend = query.get("phase"), query.get("backend")
    if phase is not None and phase not in {each.value for each in Phase}:
        raise web.HTTPBadRequest(text=f"`phase` must be one of {', '.join(each.value for each in Phase)}")
    if backend is not None:
        member_of(view, backend)
    offer, serves = (
        read_ceiling(view.service, "version", query[name]) if name in query else None
        for name in ("offer", "serves")
    )
    given = query.keys()
    if ("backend" in given) is given.isdisjoint(_OF_BACKEND) or given.isdisjoint(PARAMETERS[:3]):
        text = "give `offer`, `phase`, or `backend` with `answers`, `serves`, `drained` or `evidence`"
        raise web.HTTPBadRequest(text=text)
    answers, judged = "answers" in query or serves is not None, backend if "evidence" in query else None
    return Wanted(offer, phase, backend, answers, serves, "drained" in query, judged or "")


@final
@dataclass
class _Wait:
    """A wait of an operator. `asked`: the question for fresh probes."""

    context: AdminContext
    service: str
    wanted: Wanted
    asked: str

    async def ended(self, seconds: float) -> dict[str, object]:
        """Waits until the conditions hold, at most for some seconds. Makes the response."""
        facts, loop = self.context.facts, asyncio.get_running_loop()
        waits: Sequence[str] = ()
        try:
            if not facts.knows(self.asked):
                self.asked = await facts.request(self.service, self.wanted.judged)
            async with asyncio.timeout(seconds):
                again = loop.time() + REPEAT
                while waits := await self._waits_for():
                    await facts.changed(CHECK)
                    if loop.time() >= again:
                        facts.repeat(self.service, self.asked)
                        again = loop.time() + REPEAT
        except TimeoutError:
            waits = self._all_reasons(explained=True) or UNCONFIRMED
        except StoreError as error:
            waits = (f"the store that replicas share does not respond: {error}",)
        ended: dict[str, object] = {"asked": self.asked, "holds": not waits, "waits_for": list(waits)}
        if waits:
            return ended
        evidence = {"evidence": self._evidence()} if self.wanted.judged else {}
        return ended | {"status": await status_document(self.context.status()) | evidence}

    def _evidence(self) -> Mapping[str, object]:
        """What each live replica has counted to judge the backend, by an id that its process alone has."""
        own, _, _ = self.asked.partition(":")
        found = {}
        for replica, whose, sight in self._sights():
            if sight is not None and (evidence := sight.evidence) is not None:
                trouble = evidence.trouble and f"{whose}{evidence.trouble}"
                found[replica or own] = evidence._replace(trouble=trouble)._asdict()
        return found

    def _sights(self) -> Iterator[tuple[str, str, Sight | None]]:
        """What each live replica has seen since the question, after its id (this one's is empty) and the
        beginning of a sentence about it."""
        report = self.context.agreement()
        for replica, sight in self.context.facts.sights(self.service, self.asked, self.wanted.judged).items():
            yield replica, "" if report is None or not replica else f"{report.name_of(replica)}: ", sight

    async def _waits_for(self) -> Sequence[str]:
        """What the conditions still wait for, as sentences; empty: they hold now, and everywhere."""
        if self.wanted.drained or self.wanted.judged:
            await self.context.refresh(counters=bool(self.wanted.judged))
        if waits := self._all_reasons():
            return waits
        if pending := await pending_for(self.context, self.service):
            return [f"not acknowledged yet by {', '.join(pending)}"]
        return self._all_reasons()  # while that was waited for, something else may have changed

    def _all_reasons(self, *, explained: bool = False) -> Sequence[str]:
        """Why the conditions do not hold on some replica; empty: they do. `explained`: with what holds the
        offer, which takes milliseconds."""
        view, report = view_of(self.context, self.service), self.context.agreement()
        found: list[str] = []
        about = None if report is None else report.services.get(self.service)
        if report is not None and (about is None or not about.attached):
            found.append(f"this replica is detached: {report.store_error or (about and about.problem)}")
        why = ""
        if explained and (status := self.context.status().service(self.service)) is not None:
            from gateway.admin.ui.offer import held  # noqa: PLC0415 - a gateway starts without the page

            why = held(status)
        for _, whose, sight in self._sights():
            found += [f"{whose}{text}" for text in reasons(self.wanted, view, sight, "" if whose else why)]
        return found


def reasons(wanted: Wanted, view: ServiceView, sight: Sight | None, why: str = "") -> Sequence[str]:
    """Why conditions do not hold by what one replica sees, as sentences; empty: they hold. `why`: what holds
    the offer."""
    if sight is None:
        return ["it has not said yet what it sees; a replica of an older release never does"]
    found, form, because = [], view.service.dialect.scheme.format, f": {why}" if why else ""
    if wanted.phase is not None and sight.unanswered:
        found.append(f"no probe that was sent since is answered by {', '.join(sorted(sight.unanswered))}")
    elif wanted.phase is not None and sight.phase != wanted.phase:
        found.append(f"the phase is {sight.phase}{because}")
    if wanted.offer is not None and sight.unprobed:
        found.append(f"no probe that was sent since has ended at {', '.join(sorted(sight.unprobed))}")
    elif wanted.offer is not None and wanted.offer not in view.offer.versions:
        found.append(f"{form(wanted.offer)} is not on offer{because}")
    if wanted.answers and wanted.backend not in sight.serves:
        found.append(f"no probe that was sent since is answered by {wanted.backend}")
    elif wanted.serves is not None and wanted.serves not in sight.serves[wanted.backend or ""]:
        serves = sight.serves[wanted.backend or ""].format(view.service.dialect.scheme) or "no version"
        found.append(f"{wanted.backend} serves {serves}")
    if wanted.drained and wanted.backend not in sight.idle:
        member = view.members.member(wanted.backend or "")
        is_drained = member is not None and member.drained
        found.append(f"{wanted.backend} {'may have requests in flight' if is_drained else 'is not drained'}")
    if wanted.judged and (sight.evidence is None or sight.evidence.member != wanted.judged):
        found.append(f"it has not said yet what it has counted of {wanted.judged}")
    return found
