"""A path means the same to routing, log and backend, or is refused (threats P1-P7); errors echo nothing
(threats O12)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from tests.dataplane.assertions import assert_refused
from tests.kit.backends import always, serve
from tests.kit.messages import HOST, request, request_head
from tests.kit.workers import Testbed


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin",
        "/v1/%2e%2e/admin",
        "/v1/.%2e/admin",
        "/v1/%2E./admin",
        "/..",
        "/v1/..",
        "/v1/.",
        "/./v1",
        "/%2e",
    ],
)
async def test_P1_dots(testbed: Testbed, path: str) -> None:
    await assert_refused(testbed, request_head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1%2fnodes", "/v1%2Fnodes", "/v1%5cnodes", "/v1%5Cnodes", "/v1\\nodes"])
async def test_P2_escaped_slashes_and_backslashes(testbed: Testbed, path: str) -> None:
    await assert_refused(testbed, request_head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1/..;/admin", "/v1/..;x=1/admin", "/v1/.;/x", "/v1/%2e%2e;a/x"])
async def test_P3_dots_with_parameters(testbed: Testbed, path: str) -> None:
    await assert_refused(testbed, request_head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize(
    "path", ["/v1//nodes", "//v1/nodes", "/v1;a=b/nodes;c", "/v1/...", "/v1/.x", "/v1/x..y"]
)
async def test_P3_double_slashes_and_parameters_are_kept(testbed: Testbed, path: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", path))).status == 200
    assert backend.only_request.target == path


@pytest.mark.parametrize(
    "path",
    [
        "/v1/%00",
        "/v1/%0d%0aX:y",
        "/v1/%1f",
        "/v1/%7F",
        "/v1/\x01",
        "/v1/\x7f",
        "/v1/\xff",
        "/v1/\xc3\xa4",
        "/v1/%c0%ae",
        "/v1/%c0%af",
        "/v1/%e0%80%af",
        "/v1/%ff",
        "/v1/%ed%a0%80",
        "/v1/%",
        "/v1/%4",
        "/v1/%zz",
        "/v1/%u002e",
    ],
)
async def test_P4_control_bytes_and_malformed_utf_8(testbed: Testbed, path: str) -> None:
    await assert_refused(testbed, request_head(start=f"GET {path} HTTP/1.1"))


@pytest.mark.parametrize("target", ["/v1#x", "/v1/nodes?a=b#c", "/#", "#"])
async def test_P5_fragments(testbed: Testbed, target: str) -> None:
    await assert_refused(testbed, request_head(start=f"GET {target} HTTP/1.1"))


@pytest.mark.parametrize("path", ["/v1/%252e%252e/x", "/v1/%252f", "/v1/%2500"])
async def test_P6_double_escapes_are_kept(testbed: Testbed, path: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", path))).status == 200
    assert backend.only_request.target == path


@pytest.mark.parametrize(
    "target", ["//evil.example/x", "/@evil.example", "/http://evil.example/", "/v1?@evil"]
)
async def test_P7_no_target_changes_the_authority(testbed: Testbed, target: str) -> None:
    gateway, backend = await testbed.gateway_and_backend(serve)

    assert (await gateway.request(request("GET", target))).status == 200
    assert (backend.only_request.target, backend.only_request.one("host")) == (target, HOST)


@pytest.mark.parametrize("target", ["@evil.example/", "evil.example"])
async def test_P7_targets_without_a_slash(testbed: Testbed, target: str) -> None:
    await assert_refused(testbed, request_head(start=f"GET {target} HTTP/1.1"))


# --- local responses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        request_head("X-Canary : canary"),
        request_head(start="GET /canary#canary HTTP/1.1"),
        request_head(start="TRACE /canary HTTP/1.1"),
        request_head("Host: canary@canary", host=False),
        request_head("Expect: canary", "Content-Length: 1"),
        request_head(start="GET /canary HTTP/1.7"),
    ],
)
async def test_O12_refusals_echo_nothing(testbed: Testbed, data: bytes) -> None:
    answer = await assert_refused(testbed, data, 400, 405, 417, 505)

    assert b"canary" not in (answer.head + answer.body).lower()


async def test_O12_failures_echo_nothing(testbed: Testbed) -> None:
    gateway, _ = await testbed.gateway_and_backend(always(b"canary\r\n\r\n"))

    answer = await gateway.request(request("GET", "/v1/canary", "X-Canary: canary"))

    assert answer.status == 502
    assert b"canary" not in (answer.head + answer.body).lower()
