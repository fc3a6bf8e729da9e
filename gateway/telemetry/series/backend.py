"""The series of each backend of a service. They end when the backend is removed from the configuration, or
leaves for good."""

from __future__ import annotations

from typing import Final

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.doubt import NEVER
from gateway.core.fleet.failures import EjectionReason
from gateway.core.fleet.offer_state import advertised_versions
from gateway.telemetry.series.declaring import BACKEND, OPEN, OTHER, Group, counter, gauge, histogram
from gateway.telemetry.series.service import ends

QUEUE_REFUSALS: Final = ("queue_full", "queue_timeout")
"""The label `reason` of skewgate_queue_refused_total."""

OUT_OF_STEP: Final = ("surplus", "misplaced")
"""The label `reason` of skewgate_out_of_step_total."""

PROBE_FAILURES: Final = (
    "connect",  # no connection
    "tls",  # no TLS: the certificate is not valid, for example
    "timeout",
    "protocol",  # no valid HTTP, or cut off
    "redirect",
    "encoding",
    "too_large",
    "status",  # from here on: what dialects report
    "unauthorized",
    "document",
    "range",
    "steps",  # the dialect wanted too many requests
    "internal",  # a bug of the gateway
    OTHER,
)
"""The label `reason` of skewgate_probe_failures_total."""


class OfBackend(Group, level=BACKEND, detail=True):
    """Series of what backends did."""

    backend_duration_seconds = histogram(
        "From the first byte of a request to a backend until the head of its response.",
        page="from the first byte of a request to the backend until the head of its response",
    )
    probe_duration_seconds = histogram(
        "How long probes took, failed ones included.",
    )
    probe_failures = counter(
        "Probes that failed, by reason.",
        {"reason": PROBE_FAILURES},
    )
    contradictions = counter(
        "Responses with another served version than the negotiated one, or without the expected one.",
        page=(
            "responses with another served version than the negotiated one, or without one where this "
            "API's servers always name it"
        ),
    )
    deferred_facts = counter(
        "Facts from requests that had to wait, because too much changed.",
        page="facts from requests that had to wait, at most a fifth of a second, because too much changed",
    )
    ejections = counter(
        "How often a backend was ejected, by reason.",
        {"reason": tuple(EjectionReason)},
        page="how often it was ejected",
    )
    queue_refused = counter(
        "Requests that found no place in the queue of a full backend, or waited there too long.",
        {"reason": QUEUE_REFUSALS},
        page=(
            "requests that found no place in its queue, or waited there too long, by reason; they got "
            "503, or the error of the attempt before"
        ),
    )
    out_of_step = counter(
        "Connections to a backend that were closed because its responses did not answer their requests.",
        {"reason": OUT_OF_STEP},
        page=(
            "connections to it that were closed because what came on them did not answer their requests; "
            "then each connection to it carries one request for ten minutes"
        ),
    )
    backend_certificate_expiry_timestamp_seconds = gauge(
        "When the certificate expires that a backend has shown to the last probe that saw it.",
        page=(
            "when the certificate expires that it has shown to the last probe which saw one; not with "
            "`verify: off`"
        ),
    )


class BackendState(Group, level=BACKEND):
    """Series of the present state of backends, which each backend has."""

    backend_up = gauge(
        "1 while the last probe of a backend succeeded; for declared backends always 1.",
        page="1 while its last probe succeeded; for declared backends always 1",
        read=lambda it, now: it.member.freshness is Freshness.FRESH,
    )
    backend_draining = gauge(
        "1 while an operator has drained a backend.",
        page="1 while an operator has drained it (`skewgate drain`)",
        read=lambda it, now: it.member.drained,
    )
    backend_leaving = gauge(
        "1 while a backend that its source lists no more still counts; only of those with a source.",
        page=(
            "1 while it is leaving, of a discovered backend: it gets no requests, and counts with its "
            "last advertisement for `leave_grace`"
        ),
        read=lambda it, now: it.member.backend.leaving if it.member.backend.source else None,
        sparse=True,
    )
    offer_held_by = gauge(
        "1 while a backend must be upgraded, revived or removed for the offer to move.",
        page="1 while it is one of those that must be upgraded, revived or removed for the offer to move",
        read=lambda it, now: it.member.backend.name in it.view.offer.held.by,
    )
    backend_ejected = gauge(
        "1 while a backend is ejected.",
        page="1 while it is ejected; `/status` and the log say why and until when",
        read=lambda it, now: it.member.key in now.report.ejected,
    )
    backend_unhealthy = gauge(
        "1 while the health check of a backend says no.",
        page="1 while its health check (`probe.health`) says no",
        read=lambda it, now: it.member.unhealthy is not None,
    )


class BackendDetails(Group, level=BACKEND, detail=True):
    """More of the present state of backends."""

    queue_length = gauge(
        "Requests that wait for a backend with a bound.",
        page="requests that wait for it because it is full (`max_requests`, `max_connections`)",
        read=lambda it, now: now.report.waiting_by_member.get(it.member.key, 0),
    )
    backend_info = gauge(
        "The range of a backend's advertisement; always 1. Both ends are empty without one.",
        {"min": OPEN, "max": OPEN},
        page="the range of a backend's advertisement, always 1; both ends empty without one",
        read=lambda it, now: {ends(advertised_versions(it.member), it.view.service.dialect.scheme): 1},
    )
    backend_advertisement_timestamp_seconds = gauge(
        "When the request was sent that brought the advertisement of a backend.",
        page=(
            "when the request was sent that brought its advertisement; none before the first. It survives "
            "a restart with the state file"
        ),
        read=lambda it, now: (
            round(it.member.advertised_at + now.wall_offset, 3) if it.member.advertised_at > NEVER else None
        ),
    )
    backend_connections = gauge(
        "Connections to a backend, by state.",
        {"state": ("idle", "active")},
        page="connections to it",
        read=lambda it, now: dict(
            zip(
                ("idle", "active"),
                now.report.connections.get((it.member.service, it.member.backend.name), (0, 0)),
                strict=True,
            )
        ),
    )
    backend_connections_limit = gauge(
        "How many connections a backend with a bound of its own may have (max_connections).",
        page="how many there may be, of a backend with `max_connections`",
        read=lambda it, now: it.member.backend.max_connections or None,
    )
