"""Reactions to a failing backend: another one gets the request (`services.NAME.retry`), and this one gets
none for a while (`services.NAME.ejection`). Values only: the data plane acts on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, final

from gateway.keys.kinds import SHARED, Either, ListOf, section
from gateway.keys.texts import DURATION, PERCENTAGE, count, member_of, off


class RetryCause(StrEnum):
    """Failure after which a request may be sent again."""

    CONNECT = "connect"
    """Failure: no connection could be made, so nothing was sent."""
    NO_REPLY = "no_reply"
    """Failure: the request was sent, and no byte of a response came."""
    VERSION = "version"
    """Failure: the backend refused the version, or its response lacks the served version."""


@final
@dataclass(frozen=True, slots=True)
class Retry:
    """Rules for sending a request again, nearly always to another backend."""

    attempts: int = count(1, 10).key(
        3,
        "The attempts of a request in total, after `no_reply` or a response without the served version; 1: "
        "it is never sent again. After `connect`, where nothing was sent, every capable backend is tried; "
        "after a refusal of the version one other.",
        reason="Two more backends are enough when one restarts and the next one follows.",
        example=2,
    )
    on: frozenset[RetryCause] = ListOf(member_of(RetryCause), into=frozenset).key(
        ("connect", "no_reply", "version"),
        "connect: no connection, so nothing was sent. no_reply: sent, but no byte of a response arrived; "
        "only for methods that are safe to repeat, and after a timeout only once. version: the backend "
        "refused the version, or its response to GET, HEAD or OPTIONS lacks the served version that this "
        "API's servers always name.",
        reason="In these cases a second attempt does no harm: nothing was executed, or the request may be "
        "repeated.",
        example=["connect"],
    )


RETRY: Final = section(Retry, "Rules for sending a request again, nearly always to another backend.")
DEFAULT_RETRY: Final = Retry()


class EjectionReason(StrEnum):
    """Failure for which a backend is ejected: the label `reason` of the metrics."""

    CONNECT = "connect"
    BAD_GATEWAY = "bad_gateway"
    """Failure: the connection broke, or the response was invalid; clients get 502."""
    TIMEOUT = "timeout"
    """Failure: no response, or no rest of one, came in time; clients get 504."""
    SERVER_ERROR = "server_error"
    """Failure: the API answered with a status from 500 on."""


@final
@dataclass(frozen=True, slots=True)
class Ejection:
    """Outlier ejection: a failing backend gets no requests for a while."""

    failures: int = count(1, 1000).key(
        5,
        "Failures in a row, without a complete response between them, that eject a backend. One that has "
        "just come back is ejected again by the first.",
        reason="The value of Envoy. One failure may be the request's own fault, five of several are not.",
        example=3,
        workers=f"{SHARED}: failures are counted, and ejections decided, for all workers together",
    )
    time: float = DURATION.key(
        "10s",
        "How long the first ejection lasts; the second in a row lasts twice as long, the third three times. "
        "One of them is forgotten for each `time` that passes without a failure. After it the backend's "
        "share of the requests grows for as long as `time`, from a tenth of its usual one to all of it.",
        reason="Two intervals of probes: a process that restarts is back by then.",
        example="30s",
        workers=SHARED,
    )
    max_time: float = DURATION.key(
        "300s",
        "The longest ejection.",
        reason="A repaired backend is used again within five minutes, without a command.",
        example="1m",
        workers=SHARED,
    )
    max_share: int = PERCENTAGE.key(
        "50%",
        "Largest share of the service's backends in service that is ejected at the same time, rounded down. "
        "The only one is never ejected.",
        reason="When more of them fail, the cause is likely elsewhere.",
        example="30%",
        workers=SHARED,
    )
    on: frozenset[EjectionReason] = ListOf(member_of(EjectionReason), into=frozenset).key(
        ("connect", "bad_gateway", "timeout"),
        "Which failures count. connect: no connection. bad_gateway: the connection broke, or no valid HTTP "
        "came. timeout: no response, or no more of it, in time. server_error: the API itself answered with a "
        "status from 500 on.",
        reason="The gateway sees these failures itself. A 500 may be due to a single request.",
        example=["connect", "timeout", "server_error"],
    )


EJECTION: Final = section(Ejection, "Outlier ejection: a failing backend gets no requests for a while.")
EJECTION_OR_OFF: Final = Either(off(), EJECTION)
DEFAULT_EJECTION: Final = Ejection()
