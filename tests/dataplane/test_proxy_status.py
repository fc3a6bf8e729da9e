"""`Proxy-Status` (RFC 9209): on everything that the gateway makes, with the reason of the access log, and on
nothing that it passes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.core.fleet.backend import Backend
from gateway.dataplane.local_responses.failures import FAILURES, Failure
from gateway.dataplane.local_responses.proxy_status import ERROR_TYPES, LocalReason, proxy_status_line
from gateway.errors import CLIENT_ERROR_REASONS
from gateway.telemetry.series.service import ADMISSION_REASONS, TunnelEnding
from tests.kit.backends import ScriptedBackend, always, never_respond, refusing_backend, respond_with, serve
from tests.kit.messages import request, response, version_line
from tests.kit.workers import Testbed

NODES = request("GET", "/v1/nodes", version_line("1.31"))

REGISTERED = {
    *("dns_timeout", "dns_error", "destination_not_found", "destination_unavailable"),
    *("destination_ip_prohibited", "destination_ip_unroutable", "connection_refused"),
    *("connection_terminated", "connection_timeout", "connection_read_timeout", "connection_write_timeout"),
    *("connection_limit_reached", "tls_protocol_error", "tls_certificate_error", "tls_alert_received"),
    *("http_request_error", "http_request_denied", "http_response_incomplete"),
    *("http_response_header_section_size", "http_response_header_size", "http_response_body_size"),
    *("http_response_trailer_section_size", "http_response_trailer_size"),
    *("http_response_transfer_coding", "http_response_content_coding", "http_response_timeout"),
    *("http_upgrade_failed", "http_protocol_error", "proxy_internal_response", "proxy_internal_error"),
    *("proxy_configuration_error", "proxy_loop_detected"),
}
"""The registry of RFC 9209 2.3, which is IANA's."""


def test_every_reason_has_a_registered_type() -> None:
    responded = {failure for failure in Failure if FAILURES[failure].status}
    assert set(ERROR_TYPES) == responded | set(LocalReason)
    assert set(ERROR_TYPES.values()) <= REGISTERED
    assert not {*Failure} & {*LocalReason}, "one reason, one word"
    assert set(ADMISSION_REASONS) <= set(LocalReason)


def test_the_table_of_reasons_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text("utf-8")
    table = text.partition("## Reasons")[2].partition("## ")[0]
    documented = {}
    for row in re.findall(r"^\| (`[^|]+) \| [^|]* \| ([^|]+) \|$", table, re.MULTILINE):
        for reason in re.findall(r"`(\w+)`", row[0]):
            documented[reason] = row[1].strip("`")

    without = {reason for reason, error in documented.items() if error == "\u2013"}
    assert {reason: documented[reason] for reason in documented.keys() - without} == ERROR_TYPES
    assert without == {Failure.CLIENT_GONE, *TunnelEnding} - {TunnelEnding.CLOSED}


@pytest.mark.parametrize("reason", [*ERROR_TYPES, *CLIENT_ERROR_REASONS])
@pytest.mark.parametrize("status", [400, 503])
def test_a_line_is_a_valid_structured_field_without_an_address(reason: str, status: int) -> None:
    line = proxy_status_line(reason, status).decode()

    assert re.fullmatch(rf'Proxy-Status: skewgate; error=[a-z_]+; details="{reason}"\r\n', line)
    assert line.split("=")[1].partition(";")[0] in REGISTERED


@pytest.mark.parametrize(
    "sent, status, reason, error",
    [
        (NODES.replace(b"1.31", b"1.999"), 406, "above_max", "http_request_error"),
        (NODES.replace(b"1.31", b"0.9"), 406, "below_min", "http_request_error"),
        (NODES.replace(b"1.31", b"1.x"), 406, "malformed", "http_request_error"),
        (request("OPTIONS", "/v1", "Max-Forwards: 0"), 200, "max_forwards", "proxy_internal_response"),
        (b"GET /v1 HTTP/1.1\r\n\r\n", 400, "host", "http_request_error"),
        (b"GET /v1 HTTP/2.0\r\nHost: a\r\n\r\n", 505, "http_version", "proxy_internal_response"),
        (
            request("GET", "/v1", *["Via: 1.1 skewgate"] * 8),
            508,
            "loop",
            "proxy_loop_detected",
        ),
    ],
)
async def test_what_needs_no_backend(
    testbed: Testbed, sent: bytes, status: int, reason: str, error: str
) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)

    answer = await gateway.request(sent)

    assert answer.status == status
    assert answer.one("proxy-status") == f'skewgate; error={error}; details="{reason}"'
    for record in gateway.records:
        assert record.reason == reason


async def test_no_service(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve)
    gateway.snapshot_holder.update(type(gateway.snapshot_holder.current).configured([], now=0.0))

    answer = await gateway.request(NODES)

    assert answer.one("proxy-status") == 'skewgate; error=destination_not_found; details="no_service"'
    assert (await gateway.recorded()).reason == "no_service"


async def test_what_failed_behind_the_gateway(testbed: Testbed) -> None:
    silent, broken = (
        await testbed.backend(never_respond),
        await testbed.backend(respond_with(b"HTP/1\r\n\r\n")),
    )
    cases: list[tuple[ScriptedBackend | Backend, dict[str, Any]]] = [
        (refusing_backend(), {}),
        (silent, {"backend_head": 0.2}),
        (broken, {}),
    ]
    seen = []
    for backend, more in cases:
        gateway = await testbed.gateway(backend, **more)
        answer = await gateway.request(request("POST", "/v1/nodes", version_line("1.31"), body=b"{}"))
        seen.append((answer.status, answer.one("proxy-status"), (await gateway.recorded()).reason))

    assert seen == [
        (503, 'skewgate; error=connection_refused; details="connect"', "connect"),
        (504, 'skewgate; error=http_response_timeout; details="reply_timeout"', "reply_timeout"),
        (502, 'skewgate; error=http_protocol_error; details="bad_reply"', "bad_reply"),
    ]


async def test_nothing_is_added_to_what_a_backend_says_and_its_own_field_passes(testbed: Testbed) -> None:
    """So a 503 of the API is told from one of the gateway."""
    own = "Proxy-Status: inner.example; error=connection_timeout"
    for field in ((), (own,)):
        gateway, _ = await testbed.gateway_and_backend(always(response(503, *field, body=b"{}")))
        answer = await gateway.request(NODES)

        assert answer.status == 503
        assert [value for name, value in answer.fields if name.lower() == "proxy-status"] == [
            one.partition(": ")[2] for one in field
        ]
        assert (await gateway.recorded()).reason == ""
