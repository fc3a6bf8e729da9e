"""What two releases of the gateway say to each other at `STATE.handover`: objects of JSON, descriptors apart.

    new                                      old
    take_over {forms, release, pid}     ->
                                        <-   refused {reason}, or
                                        <-   offer {form, release, pid, state, sockets, manager} + descriptors
    ready {}                            ->
                                        <-   stopped {}         it accepts nobody and writes no state
    serving {}                          ->
                                             (closed)           the old one has drained and ended

Before `serving` the end of a connection undoes everything. A reader ignores keys that it does not know, and
refuses what lacks one that it needs. `FORM` is raised when an older release could misread what a newer one
writes. Values only: `line` carries them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

from gateway.errors import SkewgateError

FORM: Final = 1
"""Written by this release, and read by it."""
MAX_SOCKETS: Final = 4096
_MAX_QUOTED: Final = 200

CLIENTS: Final = "clients"
ADMIN: Final = "admin"
METRICS: Final = "metrics"
LOCK: Final = "lock"
"""Roles of descriptors. One whose role is not known is closed."""


class HandoverError(SkewgateError):
    """The other side said what is no message, said no, or is gone."""


@final
class Described(NamedTuple):
    """A descriptor that goes along, in this order."""

    role: str
    written: str = ""
    """As for `dataplane.edge.listening_sockets.Inherited`."""
    managed: bool = False


@final
class TakeOver(NamedTuple):
    """The first word of a new gateway."""

    pid: int
    release: str
    forms: tuple[int, ...] = (FORM,)

    def write(self) -> dict[str, Any]:
        return {"kind": "take_over", "forms": list(self.forms), "release": self.release, "pid": self.pid}


@final
class Offer(NamedTuple):
    """All that the new one gets."""

    pid: int
    release: str
    state: str | None
    """The text of the state file, with the records by which both serve for a while."""
    descriptors: tuple[Described, ...]
    manager: Mapping[str, str]
    """Variables of the environment by which the service manager is told how the process is."""

    def write(self) -> dict[str, Any]:
        return {
            "kind": "offer",
            "form": FORM,
            "release": self.release,
            "pid": self.pid,
            "state": self.state,
            "sockets": [each._asdict() for each in self.descriptors],
            "manager": dict(self.manager),
        }


@final
class Word(NamedTuple):
    """A message that is nothing but its kind: `ready`, `stopped`, `serving`; or `refused` with a reason."""

    kind: str
    reason: str = ""

    def write(self) -> dict[str, Any]:
        return {"kind": self.kind, "reason": self.reason} if self.reason else {"kind": self.kind}


READY: Final = Word("ready")
STOPPED: Final = Word("stopped")
SERVING: Final = Word("serving")


def read(message: object) -> TakeOver | Offer | Word:
    """Raises `HandoverError` for what is none of them, or of a form that this release does not speak."""
    if not isinstance(message, dict):
        raise HandoverError("it said what is no message")
    kind = message.get("kind")
    if kind == "take_over":
        return TakeOver(_number(message, "pid"), _text(message, "release"), _forms(message))
    if kind == "offer":
        if message.get("form") != FORM:
            raise HandoverError(
                f"it speaks form {_quoted(message.get('form'))}, and this release form {FORM}"
            )
        state = message.get("state")
        return Offer(
            pid=_number(message, "pid"),
            release=_text(message, "release"),
            state=None if state is None else _text(message, "state"),
            descriptors=_described(message),
            manager=_variables(message.get("manager", {})),
        )
    if kind in {"ready", "stopped", "serving", "refused"}:
        return Word(str(kind), _text(message, "reason") if "reason" in message else "")
    raise HandoverError(f"it said {_quoted(kind)}, which this release does not know")


def _forms(message: Mapping[str, object]) -> tuple[int, ...]:
    forms = message.get("forms")
    if not isinstance(forms, list) or FORM not in forms:
        raise HandoverError(f"it speaks the forms {_quoted(forms)}, and this release form {FORM}")
    return tuple(form for form in forms if type(form) is int)


def _described(message: Mapping[str, object]) -> tuple[Described, ...]:
    found = message.get("sockets")
    if not isinstance(found, list) or len(found) > MAX_SOCKETS:
        raise HandoverError("its list of sockets is none")
    described = []
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            raise HandoverError("its list of sockets is none")
        written = each.get("written", "")
        described.append(
            Described(each["role"], written if isinstance(written, str) else "", each.get("managed") is True)
        )
    return tuple(described)


def _variables(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: text for name, text in value.items() if isinstance(name, str) and isinstance(text, str)}


def _number(message: Mapping[str, object], key: str) -> int:
    value = message.get(key)
    if type(value) is not int or value < 0:
        raise HandoverError(f"its `{key}` is {_quoted(value)}")
    return value


def _text(message: Mapping[str, object], key: str) -> str:
    value = message.get(key)
    if not isinstance(value, str):
        raise HandoverError(f"its `{key}` is {_quoted(value)}")
    return value


def _quoted(value: object) -> str:
    """A foreign value in a message: short, and without control characters."""
    return repr(str(value)[:_MAX_QUOTED])
