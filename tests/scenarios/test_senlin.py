"""Senlin through the gateway: the golden examples S1 to S7 as bytes, the cases SENLIN-1 to SENLIN-4, and K7.

For SENLIN-2, these tests show that the gateway forwards a backend's response about a method outside its
range. Ranges of operations in the configuration are in test_operations.py.
"""

# ruff: noqa: N802 -- ids of examples are written with capitals

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.scenarios.fakes import STANDARD
from tests.scenarios.openstack_fleet import EXPLANATION, SenlinServer, in_front_of, senlin, senlin_error
from tests.scenarios.testbed import REPEATS, Testbed, negotiation_fields

CLUSTERS = "/clustering/v1/clusters"
VARY = ("Vary", STANDARD)
JSON = ("Content-Type", "application/json")


@pytest.fixture
async def testbed() -> AsyncIterator[Testbed]:
    """A mixed fleet of 5.0 (up to 1.9) and 16.0 (up to 1.14). The offer is 1.0 to 1.9."""
    async with in_front_of(senlin(SenlinServer(9), SenlinServer(14))) as testbed:
        yield testbed


async def test_S1_the_list_is_300_and_contains_the_offer(testbed: Testbed) -> None:
    for target in ("/clustering/", "/clustering/versions"):
        response = await testbed.same_response(target, (STANDARD, "clustering 99.99"))

        link = f"http://{testbed.authority}/clustering/v1"
        assert (response.status, negotiation_fields(response)) == (300, {VARY})
        assert json.loads(response.body) == {"versions": [SenlinServer(14).entry(link, "1.9")]}
    assert all(head.versions == {} for head in testbed.forwarded)


async def test_S2_K7_the_sdk_finds_the_API_by_the_link_of_v1(testbed: Testbed) -> None:
    """The catalog says `…/v1`. The servers' own link is `…/v1/v1`, with which the SDK gets 404."""
    version = json.loads((await testbed.same_response("/clustering/v1")).body)["version"]
    (url,) = (link["href"] for link in version["links"] if link["rel"] == "self")
    assert url == f"http://{testbed.authority}/clustering/v1"

    response = await testbed.send(f"{url.removeprefix(f'http://{testbed.authority}')}/clusters")

    assert (response.status, response.body) == (200, b'{"clusters": []}')


async def test_S3_a_success_names_the_served_version(testbed: Testbed) -> None:
    response = await testbed.same_response(CLUSTERS, (STANDARD, "clustering 1.5"))

    assert (response.status, response.body) == (200, b'{"clusters": []}')
    assert negotiation_fields(response) == {(STANDARD, "clustering 1.5"), VARY}
    assert all(head.versions == {STANDARD: "clustering 1.5"} for head in testbed.forwarded)


@pytest.mark.parametrize("text", ["1.99", "1.10", "2.0"])
async def test_S4_out_of_range(testbed: Testbed, text: str) -> None:
    response = await testbed.same_response(CLUSTERS, (STANDARD, f"clustering {text}"))

    reason = f"Version '{text}' is not supported by the API. Minimum is '1.0' and maximum is '1.9'."
    body = json.dumps(senlin_error(406, "Not Acceptable", "InvalidGlobalAPIVersion", reason)).encode()
    assert (response.status, response.body) == (406, body)
    assert negotiation_fields(response) == {VARY}
    assert JSON in response.lines
    assert testbed.forwarded == []


async def test_S5_malformed_as_Accept_wants_it(testbed: Testbed) -> None:
    requested = (STANDARD, "clustering spam")
    reason = "API Version String 'spam' is of invalid format. It must be of format 'major.minor'."

    as_json = await testbed.same_response(CLUSTERS, requested, ("Accept", "application/json"))
    as_text = await testbed.same_response(CLUSTERS, requested)

    message = f"{EXPLANATION}<br /><br />\n{reason}\n\n"
    assert json.loads(as_json.body) == {"message": message, "code": "400 Bad Request", "title": "Bad Request"}
    assert as_text.body == f"400 Bad Request\n\n{EXPLANATION}\n\n {reason}  ".encode()
    assert as_text.get("Content-Type") == "text/plain; charset=UTF-8"
    assert {as_json.status, as_text.status} == {400}
    assert testbed.forwarded == []


async def test_S6_SENLIN_2_a_method_outside_its_range_is_refused_by_the_backend(testbed: Testbed) -> None:
    target = "/clustering/v1/profile-types/os.heat.stack-1.0/ops"

    before = await testbed.same_response(target, (STANDARD, "clustering 1.3"))
    after = await testbed.same_response(target, (STANDARD, "clustering 1.4"))

    reason = "API version '1.3' is not supported on this method."
    assert before.status == 400
    assert json.loads(before.body) == senlin_error(400, "Bad Request", "MethodVersionNotFound", reason)
    assert negotiation_fields(before) == {VARY}
    assert (after.status, after.get(STANDARD)) == (200, "clustering 1.4")


async def test_S7_a_path_without_v1_gets_the_404_of_the_backend(testbed: Testbed) -> None:
    assert (await testbed.same_response("/clustering/clusters", ("Accept", "application/json"))).status == 404


@pytest.mark.parametrize(
    "value,served",
    [
        (None, "1.0"),
        ("clustering latest", "1.9"),
        ("CLUSTERING LATEST", "1.9"),
        ("compute 2.20", "1.0"),
        ("compute 2.20, clustering 1.5, volume 3.1", "1.5"),
        ("clustering 1.2, clustering 1.3", "1.3"),
    ],
)
async def test_SENLIN_1_requested_and_forwarded_version(
    testbed: Testbed, value: str | None, served: str
) -> None:
    """A backend gets its own item only of a field that names several services."""
    response = await testbed.same_response(CLUSTERS, *(() if value is None else ((STANDARD, value),)))

    assert (response.status, response.get(STANDARD)) == (200, f"clustering {served}")
    assert all(head.versions == {STANDARD: f"clustering {served}"} for head in testbed.forwarded)


async def test_SENLIN_3_1_10_is_newer_than_1_9() -> None:
    old, new = SenlinServer(9), SenlinServer(10)
    async with in_front_of(senlin(old, new, policy="reachable")) as testbed:
        response = await testbed.same_response(CLUSTERS, (STANDARD, "clustering 1.10"))

        assert response.get(STANDARD) == "clustering 1.10"
        assert (len(old.forwarded), len(new.forwarded)) == (0, REPEATS)
        assert (await testbed.send(CLUSTERS, (STANDARD, "clustering latest"))).get(
            STANDARD
        ) == "clustering 1.10"


async def test_SENLIN_4_every_version_is_served_by_a_server_that_has_it() -> None:
    servers = [SenlinServer(highest) for highest in range(1, 15)]
    async with in_front_of(senlin(*servers, policy="reachable")) as testbed:
        for minor in range(15):
            for _ in range(3):
                response = await testbed.send(CLUSTERS, (STANDARD, f"clustering 1.{minor}"))
                assert (response.status, response.get(STANDARD)) == (200, f"clustering 1.{minor}")

    assert [server.refused for server in servers] == [[]] * 14


async def test_a_server_of_Mitaka_serves_1_0_and_gets_no_version() -> None:
    legacy, new = SenlinServer(None), SenlinServer(14)
    async with in_front_of(senlin(legacy, new, policy="reachable")) as testbed:
        responses = [await testbed.send(CLUSTERS) for _ in range(REPEATS)]
        newer = [await testbed.send(CLUSTERS, (STANDARD, "clustering 1.14")) for _ in range(REPEATS)]
        documents = [await testbed.send("/clustering/v1") for _ in range(REPEATS)]

    assert {(response.status, response.get(STANDARD)) for response in responses} == {(200, "clustering 1.0")}
    assert {(response.status, response.get(STANDARD)) for response in newer} == {(200, "clustering 1.14")}
    assert {response.status for response in documents} == {200}
    assert all(head.versions == {} for head in legacy.forwarded)
    assert {head.target for head in legacy.forwarded} <= {"/v1/clusters"}


async def test_a_fleet_of_Mitaka_is_transparent() -> None:
    async with in_front_of(senlin(SenlinServer(None), SenlinServer(None))) as testbed:
        response = await testbed.send(CLUSTERS, (STANDARD, "clustering 1.14, compute 2.1"))

        assert (response.status, negotiation_fields(response)) == (200, set())
        assert testbed.forwarded[0].get(STANDARD) == "clustering 1.14, compute 2.1"


async def test_after_a_refusal_by_a_backend_another_one_serves() -> None:
    """One server is rolled back without notice. Between two probes, only its 406 shows that."""
    rolled_back, new = SenlinServer(14), SenlinServer(14)
    async with in_front_of(senlin(rolled_back, new, policy="reachable"), interval="60s") as testbed:
        rolled_back.highest = 9
        responses = [await testbed.send(CLUSTERS, (STANDARD, "clustering 1.12")) for _ in range(3 * REPEATS)]

    assert {(response.status, response.get(STANDARD)) for response in responses} == {(200, "clustering 1.12")}
    assert len(rolled_back.refused) <= 1


async def test_python_senlinclient_with_its_fixed_version_works_with_a_mixed_fleet() -> None:
    """python-senlinclient 3.1 reads `/` and `/v1`, and then always requests 1.14. A plain load balancer sends
    every second call to a server that refuses it."""
    async with in_front_of(senlin(SenlinServer(9), SenlinServer(14), policy="reachable")) as testbed:
        for _ in range(REPEATS):
            in_list = json.loads((await testbed.send("/clustering/")).body)["versions"][0]
            alone = json.loads((await testbed.send("/clustering/v1")).body)["version"]
            assert in_list == alone
            assert (alone["min_version"], alone["max_version"]) == ("1.0", "1.14")
            for resource in ("clusters", "profile-types/os.heat.stack-1.0/ops"):
                response = await testbed.send(f"/clustering/v1/{resource}", (STANDARD, "clustering 1.14"))
                assert (response.status, response.get(STANDARD)) == (200, "clustering 1.14")
