"""The metric series of each backend of a service. They end when the backend is removed from the
configuration, or leaves for good."""

from __future__ import annotations

from typing import Final

from gateway.core.fleet.backend import Freshness
from gateway.core.fleet.doubt import NEVER
from gateway.core.fleet.failures import EjectionReason
from gateway.core.fleet.offer_state import advertised_versions
from gateway.telemetry.series.declaring import BACKEND, OPEN, OTHER, Group, counter, gauge, histogram
from gateway.telemetry.series.service import ends

QUEUE_REFUSALS: Final = ("queue_full", "queue_timeout")
"""Values of the label `reason` of skewgate_queue_refused_total."""

OUT_OF_STEP: Final = ("surplus", "misplaced")
"""Values of the label `reason` of skewgate_out_of_step_total."""

PROBE_FAILURES: Final = (
    "connect",  # no connection
    "tls",  # no TLS: the certificate is not valid, for example
    "timeout",
    "protocol",  # no valid HTTP, or cut off
    "redirect",
    "encoding",
    "too_large",
    "status",  # from here on: reported by dialects
    "unauthorized",
    "document",
    "range",
    "steps",  # the dialect wanted too many requests
    "internal",  # a bug of the gateway
    OTHER,
)
"""Values of the label `reason` of skewgate_probe_failures_total."""


class OfBackend(Group, level=BACKEND, detail=True):
    """Metric series that count what happened at backends."""

    backend_duration_seconds = histogram(
        "Time from the first byte of a request to the backend until the head of its response."
    )
    probe_duration_seconds = histogram("Duration of probes, failed ones included.")
    probe_failures = counter("Failed probes by reason.", {"reason": PROBE_FAILURES})
    contradictions = counter(
        "Responses whose served version is not the negotiated one, or is missing though this API's servers "
        "always name it."
    )
    deferred_facts = counter(
        "Facts from requests that were applied later, after at most 200 ms, because too much changed at once."
    )
    ejections = counter("Ejections by reason.", {"reason": tuple(EjectionReason)})
    queue_refused = counter(
        "Requests that found the queue of the backend full, or waited there too long, by reason; they got "
        "503, or the error of the attempt before.",
        {"reason": QUEUE_REFUSALS},
    )
    out_of_step = counter(
        "Connections closed because responses on them did not match their requests; each connection to the "
        "backend then carries one request, for ten minutes.",
        {"reason": OUT_OF_STEP},
    )
    backend_certificate_expiry_timestamp_seconds = gauge(
        "Expiry of the certificate that the backend has shown to the last probe which saw one; none with "
        "`verify: off`."
    )


class BackendState(Group, level=BACKEND):
    """Metric series of the present state of backends that exist for every backend."""

    backend_up = gauge(
        "1 if the last probe succeeded; always 1 for backends with declared versions.",
        read=lambda it, now: it.member.freshness is Freshness.FRESH,
    )
    backend_draining = gauge(
        "1 while the backend is drained (`skewgate drain`).",
        read=lambda it, now: it.member.drained,
    )
    backend_leaving = gauge(
        "1 while a discovered backend is leaving: it gets no requests, and its last advertisement counts for "
        "`leave_grace`. Backends without a source have no such series.",
        read=lambda it, now: it.member.backend.leaving if it.member.backend.source else None,
        sparse=True,
    )
    offer_held_by = gauge(
        "1 while the offer can only move once this backend is upgraded, back or removed.",
        read=lambda it, now: it.member.backend.name in it.view.offer.held.by,
    )
    backend_ejected = gauge(
        "1 while the backend is ejected; `/status` and the log say why and until when.",
        read=lambda it, now: it.member.key in now.report.ejected,
    )
    backend_unhealthy = gauge(
        "1 while the health check (`probe.health`) fails.",
        read=lambda it, now: it.member.unhealthy is not None,
    )


class BackendDetails(Group, level=BACKEND, detail=True):
    """Metric series of the present state of backends that `metrics.per_backend` switches off."""

    queue_length = gauge(
        "Requests that wait because the backend is full (`max_requests`, `max_connections`).",
        read=lambda it, now: now.report.waiting_by_member.get(it.member.key, 0),
    )
    backend_info = gauge(
        "Range of the backend's advertisement; always 1. Both ends are empty if it has none.",
        {"min": OPEN, "max": OPEN},
        read=lambda it, now: {ends(advertised_versions(it.member), it.view.service.dialect.scheme): 1},
    )
    backend_advertisement_timestamp_seconds = gauge(
        "Time at which the request was sent that brought the present advertisement; none before the first. "
        "The state file keeps it across a restart.",
        read=lambda it, now: (
            round(it.member.advertised_at + now.wall_offset, 3) if it.member.advertised_at > NEVER else None
        ),
    )
    backend_connections = gauge(
        "Connections to the backend by state.",
        {"state": ("idle", "active")},
        read=lambda it, now: dict(
            zip(
                ("idle", "active"),
                now.report.connections.get((it.member.service, it.member.backend.name), (0, 0)),
                strict=True,
            )
        ),
    )
    backend_connections_limit = gauge(
        "Limit of connections to a backend with `max_connections`.",
        read=lambda it, now: it.member.backend.max_connections or None,
    )
