"""Responses that the gateway makes itself after routing, in the dialect's format: 503, errors, maintenance.

`for_client` adds to each what all responses of a service have. Dialects word version refusals. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import ceil

from gateway.core.dialect import Endpoint, GatewayError, Refusal, RequestedVersion
from gateway.core.fleet.admission import Maintenance
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.http.json_body import read_json
from gateway.core.http.message import Header, Request, RequestHead, Response, as_mapping

RETRY_AFTER = 2
"""Seconds of `Retry-After` in a 503: about until the next probes, and the pause of OpenStack clients."""

NO_BACKEND_AVAILABLE = "No backend that serves the requested API version is available at the moment."
"""Text of the gateway's 503, also of one after a backend refused a version that it advertised."""

IN_MAINTENANCE = "This service is in maintenance."

THROTTLED_RETRY_AFTER = 1
"""Seconds of `Retry-After` in a 429: whole ones only, and by then a rate-limited endpoint answers again."""


def unavailable(view: ServiceView, requested: RequestedVersion | None) -> Response:
    """Response 503 if no backend can serve; 404 or 406 would seem permanent (semantics, Negotiating)."""
    return error_response(
        view,
        GatewayError(
            503,
            NO_BACKEND_AVAILABLE,
            retry_after=RETRY_AFTER,
            offered=view.offer.offered,
            requested=requested,
        ),
    )


def maintenance_response(view: ServiceView, maintenance: Maintenance) -> Response:
    """The answer to every request of a service in maintenance, documents included, since clients that read a
    document continue to the API. The operator's body stands in the head of the dialect's own error."""
    status = maintenance.status
    error = GatewayError(status, IN_MAINTENANCE, offered=view.offer.offered)
    response = view.service.dialect.error_response(error)
    if maintenance.body is not None:
        others = [header for header in response.headers if header[0].lower() != "content-type"]
        content_type = ("Content-Type", type_of_text(maintenance.body))
        response = Response(status, (*others, content_type), maintenance.body.encode())
    if maintenance.retry_after is not None:
        response = with_retry_after(view, response, ceil(maintenance.retry_after))
    return for_client(view, response)


def error_response(view: ServiceView, error: GatewayError) -> Response:
    """An error that the gateway itself answers with after routing, in the dialect's format."""
    response = view.service.dialect.error_response(error)
    if error.retry_after is not None:
        response = with_retry_after(view, response, error.retry_after)
    return for_client(view, response)


def version_refusal(
    view: ServiceView, endpoint: Endpoint, refusal: Refusal, headers: Mapping[str, str], seconds: float | None
) -> Response:
    """The response that refuses a version. `seconds`: time until it is served again; None: nobody knows."""
    response = view.service.dialect.refuse(refusal, endpoint, headers)
    if seconds is None:
        return for_client(view, response)
    response = for_client(view, with_retry_after(view, response, ceil(seconds)))
    return response.with_headers(("Cache-Control", "no-store"))


def local_answer(
    view: ServiceView, endpoint: Endpoint, head: Request, path: str, throttled: Container[str]
) -> Response:
    """The response at an endpoint that the gateway answers; 429 if it has answered too often."""
    dialect, offered = view.service.dialect, view.offer.offered
    operations, lifecycle = view.service.operations, view.service.lifecycle
    if endpoint.rate_limited and view.service.name in throttled:
        requested = dialect.read_requested(endpoint, as_mapping(head.fields))
        text = "This document was requested too often."
        error = GatewayError(429, text, THROTTLED_RETRY_AFTER, offered=offered, requested=requested)
        return error_response(view, error)
    local_head = RequestHead(head.method, path, head.query, head.fields)
    if operations and lifecycle is not None:
        operations = operations.deprecated_below(lifecycle.below)
    response = dialect.answer(endpoint, local_head, offered, operations)
    if response.status == 503:  # nothing is on offer yet
        response = with_retry_after(view, response, RETRY_AFTER)
    return for_client(view, response)


def with_retry_after(view: ServiceView, response: Response, seconds: int) -> Response:
    """Add `Retry-After`, if the service allows it: many OpenStack clients break on it (decision 0021)."""
    if not view.service.effective_retry_after:
        return response
    return response.with_headers(("Retry-After", str(seconds)))


def for_client(view: ServiceView, response: Response) -> Response:
    """Add `Vary` (threats V10), the service's own changes and perhaps `private` to a local response."""
    service, edits = view.service, view.service.response_edits
    response = response.with_headers(*vary_header(service.vary, separately=service.dialect.vary_separately))
    response = response if edits is None else edits.edit_response(response)
    return response.with_headers(*service.naming.private)


def vary_header(names: Sequence[str], *, separately: bool) -> tuple[Header, ...]:
    """`Vary` lines that list `names`: one for all of them, or one for each; none for no names."""
    if separately:
        return tuple(("Vary", name) for name in names)
    return (("Vary", ", ".join(names)),) if names else ()


def type_of_text(text: str) -> str:
    """Media type of a body that an operator has written."""
    if isinstance(read_json(text), dict | list):
        return "application/json"
    return "text/html; charset=utf-8" if text.lstrip().startswith("<") else "text/plain; charset=utf-8"
