"""What an operator's command will change, as the page shows it before the command is given.

Reads the snapshot and changes nothing. What a command changes comes from `effects`, and whether it is refused
from `admin.commands`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

from aiohttp import web

from gateway.admin import effects
from gateway.admin.commands import member_of, read_ceiling, releases_of, view_of
from gateway.admin.context import AdminContext
from gateway.admin.ui.access import service_path
from gateway.core.fleet.snapshot import ServiceView

MAX_TYPED: Final = 80
"""Characters of what was typed that are shown again."""

CHOOSE: Final = "give a version or a release"


class Wish(NamedTuple):
    """A command as an operator has put it, not looked at yet."""

    verb: str
    """`pin`, `unpin`, `drain` or `enable`."""
    service: str
    backend: str = ""
    version: str = ""
    release: str = ""

    @property
    def ceiling(self) -> tuple[str, str]:
        """As for `read_ceiling`. Raises 400 unless it is one of both."""
        if bool(self.version) == bool(self.release):
            raise web.HTTPBadRequest(text=CHOOSE)
        return ("version", self.version) if self.version else ("release", self.release)


class Confirmation(NamedTuple):
    """What the page says before a command."""

    wish: Wish
    title: str
    effects: Sequence[str]
    """What will change. Nothing: the command would be refused, so there is nothing to confirm."""
    problem: str
    """Why it would be refused; empty: it would not."""
    status: int
    """Of the response that says so."""
    button: str
    action: str
    """Where the command is sent."""
    back: str
    """The page of the service."""
    seen: str
    """`fingerprint` at this moment."""
    is_done: bool
    """It holds already: somebody was faster, or the button was pressed twice."""
    releases: Sequence[str]
    """Release names to choose from."""


def fingerprint(view: ServiceView) -> str:
    """A short text that changes with what a command is confirmed upon: the offer, the pin, the ceiling of the
    configuration, and who is drained."""
    scheme, pin, ceiling = view.service.dialect.scheme, view.pool.pin, view.service.ceiling
    parts = [
        view.offer.versions.format(scheme) if view.offer.versions else "",
        "" if pin is None else scheme.format(pin),
        "" if ceiling is None else scheme.format(ceiling),
        *sorted(member.backend.name for member in view.pool.members if member.drained),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def confirmation(context: AdminContext, wish: Wish) -> Confirmation:
    """What `wish` will change. Raises 404 if there is no such service or backend."""
    view = view_of(context, wish.service)
    if wish.verb == "pin":
        return _of_pin(context, view, wish)
    button = wish.verb.capitalize()
    if wish.verb == "unpin":
        text = effects.unpin(view, context.last_hour(wish.service))
        is_done = view.pool.pin is None
        return _confirmation(view, wish, f"Unpin {wish.service}", text, button=button, is_done=is_done)
    member = member_of(view, wish.backend)
    is_done = member.drained == (wish.verb == "drain")
    text = (effects.drain if wish.verb == "drain" else effects.enable)(view, member)
    title = f"{button} {wish.backend} of {wish.service}"
    return _confirmation(view, wish, title, text, button=f"{button} {wish.backend}", is_done=is_done)


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
    return _confirmation(view, wish, title, text, button=title, is_done=ceiling == view.pool.pin)


def _confirmation(
    view: ServiceView,
    wish: Wish,
    title: str,
    text: str = "",
    *,
    button: str = "",
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
        button=button,
        action=f"{place}/{wish.verb}",
        back=back,
        seen=fingerprint(view),
        is_done=is_done,
        releases=tuple(releases_of(view.service)) if wish.verb == "pin" else (),
    )
