"""How often, and after which failures, a request is sent to another backend: `services.NAME.retry`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from gateway.keys.kinds import ListOf, section
from gateway.keys.texts import count, member_of


class RetryCause(StrEnum):
    """The kinds of failures after which a request may be sent again."""

    CONNECT = "connect"
    """No connection could be made, so nothing was sent."""
    NO_REPLY = "no_reply"
    """The request was sent, and no byte of a response came."""
    VERSION = "version"
    """The backend refused the version, or its response lacks the served version."""


@final
@dataclass(frozen=True, slots=True)
class Retry:
    """When a request is sent to another backend."""

    attempts: int = count(1, 10).key(
        3,
        "After `no_reply`, or a response without the served version: how many attempts a request may have "
        "in total; 1: it is never sent again. "
        "After `connect`, where nothing was sent, every capable backend is tried; after a refusal of the "
        "version one other.",
        reason="Two more backends are enough when one restarts and the next one follows.",
        example=2,
    )
    on: frozenset[RetryCause] = ListOf(member_of(RetryCause), into=frozenset).key(
        ("connect", "no_reply", "version"),
        "connect: no connection, so nothing was sent. no_reply: sent, but no byte of a response arrived; "
        "only for methods that are safe to repeat, and after a timeout only once. version: the backend "
        "refused the version, or its response to GET, HEAD or OPTIONS lacks the served version that this "
        "API's servers always name.",
        reason="In these cases a second attempt does no harm: nothing was executed, or it may be repeated.",
        example=["connect"],
    )


RETRY: Final = section(Retry, "When a request is sent to another backend.")
DEFAULT_RETRY: Final = Retry()
