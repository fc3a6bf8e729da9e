"""Ceilings and drains at run time, as scripts give them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientResponse

from gateway.controlplane.cell import Cell
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered
from gateway.core.ranges import VersionSet
from gateway.core.service import Service
from gateway.core.snapshot import Snapshot
from gateway.core.version import Version
from gateway.dialects.ironic import Ironic
from tests.admin.stand import Stand, admin

CEILING = "/services/baremetal/ceiling"
BACKENDS = (Backend("api-1", "10.0.0.1", 6385), Backend("10.0.0.2:6385", "10.0.0.2", 6385))


def uniform(highest: int = 90, lowest: int = 1, **more: Any) -> Cell:
    cell = Cell(Snapshot.configured([Service("baremetal", Ironic(), BACKENDS, **more)], now=0.0))
    for backend in BACKENDS:
        versions = VersionSet.between(Version(1, lowest), Version(1, highest))
        cell.observe("baremetal", backend.name, Answered(Advert(versions), 1.0))
    return cell


async def put(stand: Stand, document: object, path: str = CEILING) -> ClientResponse:
    return await stand.ask("PUT", path, data=json.dumps(document))


async def offer(reply: ClientResponse) -> Mapping[str, Any]:
    assert reply.status == 200, await reply.text()
    service: Mapping[str, Any] = (await reply.json())["services"]["baremetal"]
    return {**service["offer"], "phase": service["phase"], "pin": service["pin"]}


async def test_a_ceiling_is_in_force_when_the_answer_comes() -> None:
    async with admin(uniform()) as stand:
        pinned = await offer(await put(stand, {"version": "1.58"}))
        assert (pinned["max"], pinned["ceiling"], pinned["pin"]) == ("1.58", "1.58", "1.58")
        assert (pinned["phase"], pinned["held_rule"]) == ("capped", "ceiling")

        free = await offer(await stand.ask("DELETE", CEILING))
        assert (free["max"], free["ceiling"], free["pin"], free["phase"]) == ("1.90", None, None, "uniform")
        again = await stand.ask("DELETE", CEILING, data=b"a body is not needed and not looked at")
        assert (await offer(again))["max"] == "1.90"


async def test_the_answer_is_status_and_whether_it_outlives_a_restart() -> None:
    async with admin(uniform()) as stand:
        for kept in (True, False):
            stand.is_kept = kept
            answer = await (await put(stand, {"version": "1.58"})).json()
            assert answer.pop("kept") is kept
            assert answer == await stand.json("/status")


@pytest.mark.parametrize("name, highest", [("2024.1", "1.90"), ("train", "1.58"), ("our-build-7", "1.31")])
async def test_a_release_of_the_dialect_or_of_the_configuration(name: str, highest: str) -> None:
    async with admin(uniform(95, releases={"our-build-7": Version(1, 31)})) as stand:
        assert (await offer(await put(stand, {"release": name})))["max"] == highest


async def test_a_pin_stands_instead_of_the_configurations_ceiling() -> None:
    async with admin(uniform(ceiling=Version(1, 50))) as stand:
        assert (await offer(await put(stand, {"version": "1.80"})))["max"] == "1.80"
        freed = await offer(await stand.ask("DELETE", CEILING))
        assert (freed["max"], freed["ceiling"], freed["pin"]) == ("1.50", "1.50", None)


@pytest.mark.parametrize(
    "body",
    [
        *('{"version": 1.90}', '{"version": 1}', '{"release": 2024.1}', '{"version": null}'),
        *('{"version": ["1.90"]}', '{"version": {"version": "1.90"}}', '{"version": true}'),
        *('{"version": "1.90", "release": "2024.1"}', "{}", '{"ceiling": "1.90"}'),
        *('{"version": "1.90", "x": 1}', '{"version": "1.58", "version": "1.90"}'),
        *('"1.90"', '["version"]', "null", "1.90", "", "{", "version=1.90", "[" * 60_000),
        *('{"version": "latest"}', '{"version": "1.9O"}', '{"version": " 1.90"}', '{"version": "1.090"}'),
        *('{"version": ""}', '{"version": "2024.1.1"}', '{"version": "1.1000000"}'),
    ],
    ids=lambda body: body[:40],
)
async def test_a_bad_value_is_400_and_changes_nothing(body: str) -> None:
    async with admin(uniform()) as stand:
        before = stand.cell.current
        reply = await stand.ask("PUT", CEILING, data=body.encode())
        assert (reply.status, set(await reply.json())) == (400, {"error"})
        assert stand.cell.current is before


async def test_a_number_is_answered_with_how_to_write_it() -> None:
    async with admin(uniform()) as stand:
        reply = await put(stand, {"version": 1.9})
        assert (await reply.json())["error"] == (
            '`version` must be a text in quotation marks, as in {"version": "1.90"} or {"release": "2024.1"}'
        )


async def test_a_body_that_is_no_text_or_too_large_is_refused() -> None:
    async with admin(uniform()) as stand:
        assert (await stand.ask("PUT", CEILING, data=b'{"version": "\xff"}')).status == 400
        assert (await stand.ask("PUT", CEILING, data=b" " * 70_000)).status == 413


UNKNOWN = [
    ("PUT", "/services/metal/ceiling"),
    ("DELETE", "/services/metal/ceiling"),
    ("POST", "/services/metal/backends/api-1/drain"),
    ("POST", "/services/baremetal/backends/api-9/drain"),
    ("POST", "/services/baremetal/backends/api-9/enable"),
    ("POST", "/services/baremetal/backends/api-1/stop"),
    ("POST", "/services/baremetal/backends//drain"),
    ("POST", "/services/baremetal/backends/..%2Fapi-1/drain"),
    ("POST", "/services/baremetal/backends/api-1%00/drain"),
    ("POST", "/services/bare%0Ametal/backends/api-1/drain"),
]


@pytest.mark.parametrize("method, path", UNKNOWN)
async def test_an_unknown_name_is_404(method: str, path: str) -> None:
    async with admin(uniform()) as stand:
        before = stand.cell.current
        reply = await stand.ask(method, path, data='{"version": "1.58"}' if method == "PUT" else None)
        assert (reply.status, set(await reply.json())) == (404, {"error"})
        assert stand.cell.current is before


async def test_an_unknown_release_is_404() -> None:
    async with admin(uniform()) as stand:
        reply = await put(stand, {"release": "2O24.1"})
        assert reply.status == 404
        assert (await reply.json())["error"] == (
            "neither the dialect ironic nor `releases` of baremetal knows '2O24.1'"
        )


async def test_a_ceiling_below_the_minimum_is_409_and_changes_nothing() -> None:
    async with admin(uniform(90, lowest=20)) as stand:
        before = stand.cell.current
        reply = await put(stand, {"version": "1.19"})
        assert reply.status == 409
        assert (await reply.json())["error"] == (
            "the ceiling 1.19 is below the minimum 1.20 on offer: nothing could be served"
        )
        assert stand.cell.current is before
        assert (await offer(await put(stand, {"version": "1.20"})))["max"] == "1.20"
        assert (await put(stand, {"version": "1.19"})).status == 409


async def test_the_minimum_counts_also_while_a_ceiling_leaves_nothing_to_offer() -> None:
    async with admin(uniform(90, ceiling=Version(1, 10))) as stand:
        for backend in BACKENDS:
            versions = VersionSet.between(Version(1, 20), Version(1, 90))
            stand.cell.observe("baremetal", backend.name, Answered(Advert(versions), 2.0))
        before = await stand.json("/status")
        assert before["services"]["baremetal"]["offer"]["max"] is None
        assert before["services"]["baremetal"]["phase"] == "capped"

        assert (await put(stand, {"version": "1.19"})).status == 409
        assert (await offer(await put(stand, {"version": "1.30"})))["max"] == "1.30"


async def test_before_anything_is_known_any_ceiling_may_be_set() -> None:
    cell = Cell(Snapshot.configured([Service("baremetal", Ironic(), BACKENDS)], now=0.0))
    async with admin(cell) as stand:
        assert (await offer(await put(stand, {"version": "1.58"})))["ceiling"] == "1.58"
        for backend in BACKENDS:
            versions = VersionSet.between(Version(1, 1), Version(1, 90))
            cell.observe("baremetal", backend.name, Answered(Advert(versions), 1.0))
        assert (await stand.json("/status"))["services"]["baremetal"]["offer"]["max"] == "1.58"


@pytest.mark.parametrize("path", ["api-1", "10.0.0.2:6385", "10.0.0.2%3A6385", "%61pi-1"])
async def test_a_backend_is_drained_and_enabled(path: str) -> None:
    async with admin(uniform()) as stand:
        name = {"%61pi-1": "api-1", "10.0.0.2%3A6385": "10.0.0.2:6385"}.get(path, path)

        async def order(what: str) -> bool:
            reply = await stand.ask("POST", f"/services/baremetal/backends/{path}/{what}")
            assert reply.status == 200
            drained: bool = (await reply.json())["services"]["baremetal"]["backends"][name]["drained"]
            return drained

        assert [await order(what) for what in ("drain", "drain", "enable", "enable", "drain")] == [
            *(True, True, False, False, True)
        ]
        metrics = await (await stand.ask("GET", "/metrics")).text()
        assert f'skewgate_backend_draining{{backend="{name}",service="baremetal"}} 1.0' in metrics
        assert 'skewgate_phase{phase="uniform",service="baremetal"} 1.0' in metrics


async def test_a_pin_shows_in_the_metrics() -> None:
    async with admin(uniform()) as stand:
        await put(stand, {"version": "1.58"})
        metrics = await (await stand.ask("GET", "/metrics")).text()
        assert 'skewgate_phase{phase="capped",service="baremetal"} 1.0' in metrics
        assert 'skewgate_offer_info{max="1.58",min="1.1",service="baremetal"} 1.0' in metrics


ENDPOINTS = [
    (CEILING, {"PUT", "DELETE"}),
    ("/services/baremetal/backends/api-1/drain", {"POST"}),
    ("/services/baremetal/backends/api-1/enable", {"POST"}),
]


@pytest.mark.parametrize("path, methods", ENDPOINTS, ids=[path for path, _ in ENDPOINTS])
async def test_get_and_other_methods_change_nothing(path: str, methods: set[str]) -> None:
    async with admin(uniform()) as stand:
        before = stand.cell.current
        for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - methods:
            reply = await stand.ask(method, path)
            assert (reply.status, set(reply.headers["Allow"].split(","))) == (405, methods), method
        assert stand.cell.current is before


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "evil.example:80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
    ],
)
@pytest.mark.parametrize("path, methods", ENDPOINTS, ids=[path for path, _ in ENDPOINTS])
async def test_orders_are_guarded(
    path: str, methods: set[str], headers: Mapping[str, str], status: int
) -> None:
    async with admin(uniform(), token="open-sesame") as stand:
        before = stand.cell.current
        sent = {"Authorization": "Bearer open-sesame", **headers}
        for method in methods:
            reply = await stand.ask(method, path, headers=sent, data='{"version": "1.58"}')
            assert reply.status == status
        assert stand.cell.current is before


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity"])
async def test_what_is_encoded_or_not_even_that_is_no_order(
    coding: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(uniform()) as stand:
        for body in (gzip.compress(b'{"version": "1.58"}'), b"nonsense"):
            answer = await stand.ask("PUT", CEILING, data=body, headers={"Content-Encoding": coding})
            assert (answer.status, "must be" in (await answer.json())["error"]) == (400, True)
    assert not caplog.records


async def test_who_leaves_in_the_middle_of_an_order_is_no_bug_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cell = uniform()
    async with admin(cell) as stand:
        _, writer = await asyncio.open_connection("127.0.0.1", stand.port)
        head = f"PUT {CEILING} HTTP/1.1\r\nHost: 127.0.0.1:{stand.port}\r\nContent-Length: 99\r\n\r\n"
        writer.write(head.encode() + b'{"version": "1.58"}')
        await writer.drain()
        await stand.json("/status")  # by then it has been read
        writer.close()
        await writer.wait_closed()
        assert (await stand.json("/status"))["services"]["baremetal"]["pin"] is None
    assert not caplog.records


async def test_an_error_quotes_no_more_than_a_line() -> None:
    async with admin(uniform()) as stand:
        for key in ("version", "release"):
            answer = await put(stand, {key: "a" * 60_000})
            assert len(await answer.text()) < 300
