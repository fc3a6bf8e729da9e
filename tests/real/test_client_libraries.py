"""Real client libraries through a gateway with the files of config/examples, in front of fake servers.

The servers are those of `tests/worked`: a test fails when one of them refuses a version. The tests here show
which version each library requests by itself, how it reports a refusal, and that it works during an upgrade.
"""

from __future__ import annotations

import pytest

from tests.real.service_clients import OF_ALL, OF_ELASTICSEARCH_8, Libraries
from tests.worked.fleet import running
from tests.worked.header_servers import Elasticsearch, GitHub, Stripe
from tests.worked.path_servers import DockerEngine

pytestmark = pytest.mark.real

# The default version of each library.
STRIPE_OWN = "2026-10-28.endive"
ELASTIC_OWN = {OF_ELASTICSEARCH_8: "8", OF_ALL: "9"}


async def test_docker_negotiates_the_maximum_of_the_offer(libraries: Libraries) -> None:
    daemon = DockerEngine("1.24", "1.43")
    async with running("docker-engine", daemon) as testbed:
        session = await libraries.session("docker", testbed.base, "ping", "containers", "volume", "range")

        assert (session.values(), session.version) == ([True, [], "data", ["1.24", "1.43"]], "1.43")
        assert testbed.executed() == ["1.43"] * 3

        daemon.versions = ("1.24", "1.47")
        await testbed.until_offered("1.24-1.47")
        session = await libraries.session("docker", testbed.base, "containers")

        assert (session.values(), session.version) == ([[]], "1.47")
        assert testbed.executed() == ["1.47"]


async def test_docker_with_a_configured_version_gets_it_or_the_refusal_of_the_daemon(
    libraries: Libraries,
) -> None:
    async with running("docker-engine", DockerEngine("1.24", "1.43")) as testbed:
        session = await libraries.session("docker", testbed.base, "containers", version="1.30")
        assert (session.values(), testbed.executed()) == ([[]], ["1.30"])

        refused = await libraries.session("docker", testbed.base, "containers", version="1.45")
        error = refused.only_error()
        assert error.error == "APIError"
        assert "client version 1.45 is too new. Maximum supported API version is 1.43" in error.text
        assert testbed.executed() == []


async def test_docker_attaches_and_runs_commands_through_a_tunnel(libraries: Libraries) -> None:
    """Four ways: with standard input, whose end is a half-close, and with output alone."""
    calls = ("attach", "attach_output", "exec", "exec_output")
    talk = [[1, "some input"], [2, "end of input"]]
    async with running("docker-engine", DockerEngine("1.24", "1.43")) as testbed:
        session = await libraries.session("docker", testbed.base, *calls)

        output = [["output ", None], [None, "errors"]]
        assert session.values() == [talk, "output errors", talk, [output, 0]]
        assert set(testbed.executed()) == {"1.43"}


async def test_elasticsearch_8_works_during_an_upgrade_and_9_after_it(
    libraries: Libraries,
) -> None:
    fleet = Elasticsearch("8.19.0"), Elasticsearch("9.1.0")
    calls = ("search", "index", "bulk", "info", "cat")
    media_types = ["application/vnd.elasticsearch+json;compatible-with={}"] * 4
    media_types.append("text/vnd.elasticsearch+plain;compatible-with={}")
    async with running("elasticsearch", *fleet) as testbed:
        eight = await libraries.session("elasticsearch", testbed.base, *calls, environment=OF_ELASTICSEARCH_8)
        assert eight.values() == [media_type.format(8) for media_type in media_types]
        assert testbed.executed() == ["8"] * len(calls)

        nine = await libraries.session("elasticsearch", testbed.base, "search")
        assert nine.only_error().error == "BadRequestError"
        assert testbed.executed() == []

        fleet[0].upgrade("9.1.0")
        await testbed.until_offered("8-9")
        for environment, version in ELASTIC_OWN.items():
            session = await libraries.session("elasticsearch", testbed.base, *calls, environment=environment)
            assert session.values() == [media_type.format(version) for media_type in media_types]
            assert testbed.executed() == [version] * len(calls)


async def test_pygithub_without_and_with_a_date(libraries: Libraries) -> None:
    old, new = "2022-11-28", "2026-03-10"
    fleet = GitHub(old), GitHub(old, new)
    async with running("github", *fleet) as testbed:
        unversioned = await libraries.session("pygithub", testbed.base, "user", "selected")
        assert (unversioned.values(), testbed.executed()) == (["octocat", old], [old, old])

        refused = (await libraries.session("pygithub", testbed.base, "user", version=new)).only_error()
        assert refused.error == "GithubException"
        assert f"Supported versions: {old}." in refused.text
        assert testbed.executed() == []

        fleet[0].versions = (old, new)
        await testbed.until_offered(f"{old}, {new}")
        session = await libraries.session("pygithub", testbed.base, "selected", version=new)
        assert (session.values(), testbed.executed()) == ([new], [new])


async def test_stripe_with_a_configured_and_with_its_own_version(libraries: Libraries) -> None:
    served = ("2023-10-16", "2024-06-20", "2024-09-30.acacia", "2025-03-31.basil")
    async with running("stripe", Stripe(*served), Stripe(*served, STRIPE_OWN)) as testbed:
        session = await libraries.session("stripe", testbed.base, "balance", version="2025-03-31.basil")
        assert (session.values(), testbed.executed()) == (["2025-03-31.basil"], ["2025-03-31.basil"])

        refused = await libraries.session("stripe", testbed.base, "balance")
        assert refused.version == STRIPE_OWN
        error = refused.only_error()
        assert error.error == "InvalidRequestError"
        assert f"Invalid Stripe API version: {STRIPE_OWN}" in error.text
        assert testbed.executed() == []
