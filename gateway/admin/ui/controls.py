"""Pin, unpin, drain and enable from the operations page: a page with the effects, then the command.

    GET  /ui/services/NAME/confirm?do=pin&version=1.58      also release=2024.1; do=unpin
                                  ?do=drain&backend=B       and do=enable
    POST /ui/services/NAME/pin, …/unpin, …/backends/B/drain, …/backends/B/enable

GET changes nothing. A POST must repeat the CSRF token of its session and a fingerprint of the confirmed
state: if that has changed, the page is shown again, with the present effects. `admin.commands` has the
commands and `effects` their effects: there is no second set of rules here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from time import time
from typing import Final, NamedTuple, final
from urllib.parse import quote

from aiohttp import web

from gateway.admin import commands, effects
from gateway.admin.commands import CommandResult, member_of, read_ceiling, releases_of, view_of
from gateway.admin.context import AdminContext
from gateway.admin.ui.access import CALLER, DONE, service_path, set_session
from gateway.admin.ui.page_responses import PageResponses, read_form, read_query, redirection
from gateway.admin.ui.sessions import Notice, Session, Sessions
from gateway.core.fleet.fleet import Drain, Pin
from gateway.core.fleet.snapshot import ServiceView
from gateway.telemetry.process_log import named

NOT_AUTHENTICATED: Final = "to pin and drain from this page, set `admin.token`"

STALE: Final = (
    "nothing was done: the offer, the pin or the drained backends have changed since the page was made; "
    "check the effects and confirm again"
)
PARAMETERS: Final = {
    "pin": ("do", "version", "release"),
    "unpin": ("do",),
    "drain": ("do", "backend"),
    "enable": ("do", "backend"),
}
"""Query parameters of a command's confirmation page, by verb."""

MAX_TYPED: Final = 80
"""Maximum characters of an operator's input that are shown again."""

CHOOSE: Final = "choose a version or a release"


class Wish(NamedTuple):
    """Command as typed by an operator, not validated yet."""

    verb: str
    """Verb: `pin`, `unpin`, `drain` or `enable`."""
    service: str
    backend: str = ""
    version: str = ""
    release: str = ""

    @property
    def ceiling(self) -> tuple[str, str]:
        """Version or release of a pin, for `read_ceiling`. Raises 400 unless there is exactly one of both."""
        if bool(self.version) == bool(self.release):
            raise web.HTTPBadRequest(text=CHOOSE)
        return ("version", self.version) if self.version else ("release", self.release)


class Confirmation(NamedTuple):
    """Content of the page that asks to confirm a command."""

    wish: Wish
    title: str
    effects: Sequence[str]
    """Effects of the command, as sentences; empty if it would be refused."""
    problem: str
    """Reason for which the command would be refused; empty: it would not."""
    status: int
    action: str
    back: str
    seen: str
    is_done: bool
    """Whether the command is in force already: somebody was faster, or the button was pressed twice."""
    releases: Sequence[str]


def add_control_routes(app: web.Application, context: AdminContext, sessions: Sessions) -> None:
    """Adds the pages of commands, and targets of their forms. The router percent-decodes names in paths."""
    controls, service = _Controls(context, sessions), "/ui/services/{service}"
    app.router.add_get(f"{service}/confirm", controls.confirm)
    app.router.add_post(f"{service}/{{verb:pin|unpin}}", controls.command)
    app.router.add_post(f"{service}/backends/{{backend}}/{{verb:drain|enable}}", controls.command)


@final
class _Controls:
    def __init__(self, context: AdminContext, sessions: Sessions) -> None:
        self._context = context
        self._sessions = sessions

    async def confirm(self, request: web.Request) -> web.StreamResponse:
        """Shows the effects of a command. An operator without a session gets one, which the form needs."""
        caller = request[CALLER]
        if caller.shown is None:
            raise web.HTTPForbidden(text=NOT_AUTHENTICATED)
        found = confirmation(self._context, _wish_of(request))
        if caller.session is not None:
            return await _shown(request, found, caller.session)
        session_id, session = self._sessions.begin(caller.shown)
        response = await _shown(request, found, session)
        set_session(request, response, session_id)
        return response

    async def command(self, request: web.Request) -> web.StreamResponse:
        """Gives a command, and goes back to the page of the service, which shows the result."""
        caller = request[CALLER]
        if caller.shown is None:
            raise web.HTTPForbidden(text=NOT_AUTHENTICATED)
        names = request.match_info
        fields = await read_form(request, ("csrf", "seen", "version", "release"))
        session = caller.session_of(fields.get("csrf", ""))
        wish = Wish(
            names["verb"],
            names["service"],
            names.get("backend", ""),
            fields.get("version", ""),
            fields.get("release", ""),
        )
        found = confirmation(self._context, wish)
        if fields.get("seen") != found.seen and not found.is_done:
            return await _shown(request, found, session, STALE, web.HTTPConflict.status_code)
        try:
            result = await self._do(wish)
        except web.HTTPException as refusal:
            found = confirmation(self._context, wish)
            return await _shown(request, found, session, str(refusal.text), refusal.status)
        number = session.add_notice(_notice(wish, result))
        return redirection(f"{service_path(wish.service)}?{DONE}={number}")

    async def _do(self, wish: Wish) -> CommandResult:
        match wish.verb:
            case "pin":
                return await commands.pin(self._context, wish.service, *wish.ceiling)
            case "unpin":
                return await commands.apply(self._context, wish.service, Pin(None))
            case verb:
                drain = Drain(wish.backend, drained=verb == "drain")
                return await commands.set_drained(self._context, wish.service, drain)


async def _shown(
    request: web.Request, found: Confirmation, session: Session, problem: str = "", status: int = 200
) -> web.Response:
    """Responds with a command's confirmation page. `problem` and `status`: why it was not accepted, if so."""
    return await PageResponses.of(request).respond(
        "confirm.html",
        status=status if problem else found.status,
        each=found,
        csrf=session.csrf,
        problem=problem or found.problem,
    )


def _wish_of(request: web.Request) -> Wish:
    """Reads the command to confirm from the parameters of the query. Raises 400."""
    verb = request.query.get("do", "")
    if verb not in PARAMETERS:
        raise web.HTTPBadRequest(text="`do` must be pin, unpin, drain or enable")
    fields = read_query(request, PARAMETERS[verb])
    return Wish(
        verb,
        request.match_info["service"],
        backend=fields.get("backend", ""),
        version=fields.get("version", "").strip(),
        release=fields.get("release", ""),
    )


def _notice(wish: Wish, result: CommandResult) -> Notice:
    """Describes the result of a command in sentences."""
    done = {
        "pin": f"{wish.service} is pinned to {wish.version or wish.release}.",
        "unpin": f"{wish.service} is unpinned.",
        "drain": f"{wish.backend} is drained.",
        "enable": f"{wish.backend} is enabled.",
    }
    sentences = [done[wish.verb]]
    if result.pending:
        sentences.append(f"Not acknowledged yet by: {named(result.pending)}.")
    if result.warning:
        sentences.append(f"{result.warning[:1].upper()}{result.warning[1:]}.")
    if not result.saved:
        sentences.append("It is not in a state file: a restart forgets it.")
    return Notice(time(), " ".join(sentences), attention=len(sentences) > 1)


def fingerprint(view: ServiceView) -> str:
    """Hash of the state on which effects depend: the offer, the pin, the ceiling and the drained backends."""
    scheme, pin, ceiling = view.service.dialect.scheme, view.members.pin, view.service.ceiling
    parts = [
        view.offer.versions.format(scheme) if view.offer.versions else "",
        "" if pin is None else scheme.format(pin),
        "" if ceiling is None else scheme.format(ceiling),
        *sorted(member.backend.name for member in view.members.all if member.drained),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def confirmation(context: AdminContext, wish: Wish) -> Confirmation:
    """Makes the content of a command's confirmation page. Raises 404 without such a service or backend."""
    view = view_of(context, wish.service)
    if wish.verb == "pin":
        return _of_pin(context, view, wish)
    if wish.verb == "unpin":
        text = effects.unpin(view, context.last_hour(wish.service))
        is_done = view.members.pin is None
        return _confirmation(view, wish, f"Unpin {wish.service}", text, is_done=is_done)
    member = member_of(view, wish.backend)
    is_done = member.drained == (wish.verb == "drain")
    text = (effects.drain if wish.verb == "drain" else effects.enable)(view, member)
    title = f"{wish.verb.capitalize()} {wish.backend} of {wish.service}"
    return _confirmation(view, wish, title, text, is_done=is_done)


def _of_pin(context: AdminContext, view: ServiceView, wish: Wish) -> Confirmation:
    title = f"Pin {wish.service}"
    try:
        ceiling = read_ceiling(view.service, *wish.ceiling)
    except web.HTTPException as refusal:
        return _confirmation(view, wish, title, problem=str(refusal.text), status=refusal.status)
    title = f"{title} to {view.service.dialect.scheme.format(ceiling)}"
    if (reason := effects.below_minimum(view, ceiling)) is not None:
        return _confirmation(view, wish, title, problem=reason, status=web.HTTPConflict.status_code)
    text = effects.pin(view, ceiling, context.last_hour(wish.service))
    return _confirmation(view, wish, title, text, is_done=ceiling == view.members.pin)


def _confirmation(
    view: ServiceView,
    wish: Wish,
    title: str,
    text: str = "",
    *,
    problem: str = "",
    status: int = 200,
    is_done: bool = False,
) -> Confirmation:
    back = service_path(wish.service)
    place = f"{back}/backends/{quote(wish.backend, safe='')}" if wish.backend else back
    return Confirmation(
        wish=wish._replace(version=wish.version[:MAX_TYPED], release=wish.release[:MAX_TYPED]),
        title=title,
        effects=tuple(text.split("; ")) if text else (),
        problem=problem,
        status=status,
        action=f"{place}/{wish.verb}",
        back=back,
        seen=fingerprint(view),
        is_done=is_done,
        releases=tuple(releases_of(view.service)) if wish.verb == "pin" else (),
    )
