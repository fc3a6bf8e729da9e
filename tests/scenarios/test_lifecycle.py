"""The end of versions is announced to the clients that use them: headers, documents, metrics, over sockets.

Ironic, Nova, Chef, and an API of its own; and a gateway with two worker processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.offer import Phase
from tests.kit.gateways import gateway_of
from tests.kit.metrics import Scrape
from tests.scenarios import chef_fleet, nova_fleet
from tests.scenarios.custom_fleet import Versioned
from tests.scenarios.custom_fleet import in_front_of as in_front_of_custom
from tests.scenarios.fakes import STANDARD, Head, Ironic, running
from tests.scenarios.testbed import Testbed, configuration, in_front_of, service_of

LINK = "https://docs.example/old"
DEPRECATION = ("Deprecation", "@1688169600")
SUNSET = ("Sunset", "Tue, 31 Dec 2999 00:00:00 GMT")
LINKS = [("Link", f'<{LINK}>; rel="deprecation"'), ("Link", f'<{LINK}>; rel="sunset"')]
ALL = [DEPRECATION, LINKS[0], SUNSET, LINKS[1]]


def keys(deprecated: str, sunset: str) -> str:
    return (
        f"{{deprecated: {{below: '{deprecated}', since: 2023-07-01, link: '{LINK}'}},"
        f" sunset: {{below: '{sunset}', at: 2999-12-31, link: '{LINK}'}}}}"
    )


def announced(response: Head) -> list[tuple[str, str]]:
    return [line for line in response.lines if line[0].lower() in ("deprecation", "sunset", "link")]


def with_lines(server: Any, *lines: str) -> Any:
    """The server, with more lines in each of its responses."""
    respond: Callable[[Head], bytes] = server._response
    more = "".join(f"\r\n{line}" for line in lines).encode()

    def response(head: Head) -> bytes:
        start, rest = respond(head).split(b"\r\n", 1)
        return start + more + b"\r\n" + rest

    server._response = response
    return server


def entries(body: bytes) -> list[tuple[Any, ...]]:
    """Minimum, next minimum and its date, of each version of a document."""
    document = json.loads(body)
    found = document.get("versions") or [document["version"]]
    names = ("min_version", "next_min_version", "not_before")
    return [tuple(entry.get(name) for name in names) for entry in found]


# --- Ironic ------------------------------------------------------------------------------------------------


async def test_ironic_announces_below_the_lines_and_nothing_above() -> None:
    async with in_front_of(Ironic(58), Ironic(90), lifecycle=keys("1.30", "1.20")) as testbed:
        assert announced(await testbed.at(None)) == ALL
        assert announced(await testbed.at("1.19")) == ALL
        assert announced(await testbed.at("1.29")) == ALL[:2]
        for version in ("1.30", "1.58", "latest"):
            assert announced(await testbed.at(version)) == []
        refused = await testbed.at("1.99")
        assert (refused.status, announced(refused)) == (406, [])
        missing = await testbed.at("1.19", "/v1/nodes/nope")
        assert (missing.status, announced(missing)) == (404, ALL), "it was executed at 1.19"


async def test_ironics_documents_name_the_next_minimum_and_its_date() -> None:
    async with in_front_of(Ironic(58), lifecycle=keys("1.30", "1.20")) as testbed:
        root, v1 = await testbed.at(None, "/"), await testbed.at("1.58", "/v1")

        assert entries(root.body) == entries(v1.body) == [("1.1", "1.20", "2999-12-31")]
        assert announced(root) == announced(v1) == []
        assert announced(await testbed.at("1.1", "/v1")) == ALL


async def test_a_cached_document_announces_the_same() -> None:
    async with in_front_of(Ironic(58), lifecycle=keys("1.30", "1.20")) as testbed:
        fetched = await testbed.at("1.1", "/v1")
        testbed.gateway.snapshot_holder.apply(testbed.service, Drain("api-1"))

        cached = await testbed.at("1.1", "/v1")

        assert (cached.status, cached.body, announced(cached)) == (200, fetched.body, ALL)


async def test_what_a_backend_announces_itself_stays() -> None:
    own = with_lines(Ironic(58), "Sunset: Sat, 01 Jan 2050 00:00:00 GMT", 'Link: <https://a>; rel="next"')
    async with in_front_of(own, lifecycle=keys("1.30", "1.20")) as testbed:
        found = announced(await testbed.at("1.1"))

    assert sorted((name.lower(), value) for name, value in found) == [
        ("deprecation", DEPRECATION[1]),
        ("link", '<https://a>; rel="next"'),
        ("link", LINKS[0][1]),
        ("sunset", "Sat, 01 Jan 2050 00:00:00 GMT"),
    ]


async def test_a_reload_announces_and_takes_back(tmp_path: Path) -> None:
    server, file = Ironic(58), tmp_path / "gateway.yaml"
    async with in_front_of(server, source=file) as testbed, aiohttp.ClientSession() as session:
        for more, expected in (({}, []), ({"lifecycle": keys("1.30", "1.20")}, ALL), ({}, [])):
            file.write_text(configuration(service_of("baremetal", [server.port], **more)))
            async with session.post(f"{testbed.gateway.admin_url}/-/reload") as response:
                assert response.status == 200
            assert announced(await testbed.at("1.1")) == expected
            root = await testbed.at(None, "/")
            assert entries(root.body)[0][1:] == (("1.20", "2999-12-31") if more else (None, None))


async def test_metrics_status_page_and_explain_show_the_lines() -> None:
    async with in_front_of(Ironic(58), lifecycle=keys("1.30", "1.20")) as testbed:
        for version in ("1.19", "1.29", None, "1.30", "latest", "1.99"):
            await testbed.at(version)
        gateway = testbed.gateway
        scrape = Scrape(b"".join(gateway.metrics.exposition("")[0]).decode())
        assert scrape.by("service", "skewgate_deprecated_requests_total") == {"baremetal": 3}
        assert scrape.by("service", "skewgate_sunset_timestamp_seconds") == {"baremetal": 32503593600}

        async with aiohttp.ClientSession() as session:
            async with session.get(f"{gateway.admin_url}/status") as response:
                status = await response.json()
            async with session.get(f"{gateway.admin_url}/ui/services/baremetal") as response:
                page = await response.text()
    words = "below 1.30 deprecated from 2023-07-01; below 1.20 sunset on 2999-12-31"
    assert status["services"]["baremetal"]["lifecycle"] == {
        "announced": words,
        "deprecated": {"below": "1.30", "date": "2023-07-01", "link": LINK},
        "sunset": {"below": "1.20", "date": "2999-12-31", "link": LINK},
    }
    assert f"B{words[1:]}." in page


# --- Nova, Chef, an API of its own -------------------------------------------------------------------------


async def test_nova_announces_with_both_version_headers() -> None:
    nova = nova_fleet.Nova
    async with nova_fleet.in_front_of(nova(60), nova(104), lifecycle=keys("2.30", "2.30")) as testbed:
        old = await testbed.send(nova_fleet.SERVERS, (STANDARD, "compute 2.29"))
        assert (announced(old), old.get(STANDARD)) == (ALL, "compute 2.29")
        assert announced(await testbed.send(nova_fleet.SERVERS)) == ALL
        assert announced(await testbed.send(nova_fleet.SERVERS, (STANDARD, "compute 2.30"))) == []
        root, version = await testbed.send("/"), await testbed.send("/v2.1/")

    assert entries(root.body) == [("", None, None), ("2.1", "2.30", "2999-12-31")]
    assert entries(version.body) == [("2.1", "2.30", "2999-12-31")]


async def test_chef_announces_and_its_extended_document_has_the_status() -> None:
    operations = "[{methods: [GET], path: '/users/{user}', versions: '>=0'}]"
    async with chef_fleet.in_front_of(
        chef_fleet.Erchef(2), lifecycle=keys("1", "1"), operations=operations
    ) as testbed:
        assert announced(await testbed.at(None)) == ALL
        assert announced(await testbed.at("0", sign=chef_fleet.SIGNED_1_3)) == ALL
        assert announced(await testbed.at("1")) == []
        document = await testbed.send("/server_api_version/extended")

    (user,) = json.loads(document.body)["endpoints"]
    assert [(each["version"], each["status"]) for each in user["versions"]] == [
        (0, "deprecated"),
        (1, "active"),
        (2, "active"),
    ]


async def test_an_api_of_its_own_announces_by_its_dates() -> None:
    options = "{places: [{header: X-Date}], scheme: date, reply: {served: X-Served}}"
    versions = ("2024-01-01", "2024-06-01", "2025-01-01")
    server = Versioned(versions, lambda head: head.get("X-Date"))
    lifecycle = keys("2025-01-01", "2024-06-01")
    declared = f", versions: '{', '.join(versions)}'"
    more = {"custom": options, "backends": declared, "lifecycle": lifecycle}
    async with in_front_of_custom(server, default_version="minimum", **more) as testbed:
        found = [announced(await testbed.send("/x", ("X-Date", version))) for version in versions]

    assert found == [ALL, ALL[:2], []]


# --- two workers -------------------------------------------------------------------------------------------


@pytest.mark.processes
async def test_both_workers_announce_and_count() -> None:
    server = Ironic(58)
    async with running(server):
        service = service_of("baremetal", [server.port], lifecycle=keys("1.30", "1.20"))
        async with gateway_of("workers: 2\n" + configuration(service)) as gateway:
            testbed = Testbed(gateway, [server], "")
            await testbed.until(lambda view: view.offer.phase is Phase.UNIFORM)
            for _ in range(10):
                assert announced(await testbed.at("1.1")) == ALL
                assert announced(await testbed.at("1.58")) == []
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{gateway.admin_url}/metrics") as response,
            ):
                scrape = Scrape(await response.text())

    assert scrape.by("service", "skewgate_deprecated_requests_total") == {"baremetal": 10}
    assert scrape.by("service", "skewgate_sunset_timestamp_seconds") == {"baremetal": 32503593600}
