"""The messages of a hand-over at `STATE.handover`, perhaps between two releases: JSON objects.

    new                                      old
    take_over {forms, release, pid}     ->
                                        <-   refused {reason}, or
                                        <-   offer {form, release, pid, state, sockets, manager} + descriptors
    ready {}                            ->
                                        <-   stopped {}         it accepts nobody and writes no state
    serving {}                          ->
                                             (closed)           the old one has drained and ended

Before `serving` the end of a connection undoes everything. A reader ignores unknown keys, and refuses a
message without a key that it needs. `FORM` is raised when an older release could misread a newer message.
Values only: `connection` carries them, and the descriptors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

from gateway.errors import SkewgateError

FORM: Final = 1
"""Version number of the form of hand-over messages that this release writes and reads."""
MAX_SOCKETS: Final = 4096
_MAX_QUOTED: Final = 200

LOCK: Final = "lock"
"""Role of the descriptor that locks the state file. The other roles are those of `Inheritance`; a descriptor
of an unknown role is closed."""


class HandoverError(SkewgateError):
    """Error in a hand-over: the other side has sent an invalid message, has refused, or is gone."""


@final
class Described(NamedTuple):
    """A file descriptor for the new gateway: its role; `written` and `managed`: as in `Inherited`."""

    role: str
    written: str = ""
    managed: bool = False


@final
class TakeOver(NamedTuple):
    """The first message of a new gateway to the running one: it asks to take over."""

    pid: int
    release: str
    forms: tuple[int, ...] = (FORM,)

    def write(self) -> dict[str, Any]:
        return {"kind": "take_over", "forms": list(self.forms), "release": self.release, "pid": self.pid}


@final
class HandoverOffer(NamedTuple):
    """The answer to `TakeOver`: all that the new gateway gets from the old one."""

    pid: int
    release: str
    state: str | None
    """The state file's text, with the agreed records by which both gateways serve for a while."""
    descriptors: tuple[Described, ...]
    manager: Mapping[str, str]
    """Environment variables of the old gateway for notifying the service manager."""

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
class PlainMessage(NamedTuple):
    """A hand-over message without content: `ready`, `stopped`, `serving`; or `refused`, with a reason."""

    kind: str
    reason: str = ""

    def write(self) -> dict[str, Any]:
        return {"kind": self.kind, "reason": self.reason} if self.reason else {"kind": self.kind}


READY: Final = PlainMessage("ready")
STOPPED: Final = PlainMessage("stopped")
SERVING: Final = PlainMessage("serving")


def read(message: object) -> TakeOver | HandoverOffer | PlainMessage:
    """Read a hand-over message. Raises `HandoverError` if it is invalid or of an unknown form."""
    if not isinstance(message, dict):
        raise HandoverError("it has sent an invalid message")
    kind = message.get("kind")
    if kind == "take_over":
        return TakeOver(_number(message, "pid"), _text(message, "release"), _forms(message))
    if kind == "offer":
        if message.get("form") != FORM:
            raise HandoverError(
                f"its messages have form {_quoted(message.get('form'))}, and this release reads form {FORM}"
            )
        state = message.get("state")
        return HandoverOffer(
            pid=_number(message, "pid"),
            release=_text(message, "release"),
            state=None if state is None else _text(message, "state"),
            descriptors=_described(message),
            manager=_variables(message.get("manager", {})),
        )
    if kind in {"ready", "stopped", "serving", "refused"}:
        return PlainMessage(str(kind), _text(message, "reason") if "reason" in message else "")
    raise HandoverError(f"it has sent {_quoted(kind)}, which this release does not know")


def _forms(message: Mapping[str, object]) -> tuple[int, ...]:
    forms = message.get("forms")
    if not isinstance(forms, list) or FORM not in forms:
        raise HandoverError(f"its messages have forms {_quoted(forms)}, and this release reads form {FORM}")
    return tuple(form for form in forms if type(form) is int)


def _described(message: Mapping[str, object]) -> tuple[Described, ...]:
    found = message.get("sockets")
    if not isinstance(found, list) or len(found) > MAX_SOCKETS:
        raise HandoverError("its list of sockets is invalid")
    described = []
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get("role"), str):
            raise HandoverError("its list of sockets is invalid")
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
    """Text of a value from the other side, for an error message: short, and without control characters."""
    return repr(str(value)[:_MAX_QUOTED])
