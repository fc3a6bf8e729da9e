"""Real client libraries through the gateway with the files of config/examples, in front of embedded fleets.

What the fleets are is told in `tests/worked`; a fleet that refused a version fails its test there. Here the
clients are those that people use: what they ask for by themselves, what they make of a refusal, and that they
get along through an upgrade.
"""

from __future__ import annotations

import pytest

from tests.real.client_libraries import OF_ALL, OF_ELASTICSEARCH_8, Libraries
from tests.worked.fleet import running
from tests.worked.header_servers import Elasticsearch, GitHub, Stripe
from tests.worked.path_servers import DockerEngine

pytestmark = pytest.mark.real

# What each library speaks when nobody tells it otherwise.
STRIPE_OWN = "2026-10-28.endive"
ELASTIC_OWN = {OF_ELASTICSEARCH_8: "8", OF_ALL: "9"}


async def test_docker_negotiates_the_offer_and_keeps_it(libraries: Libraries) -> None:
    fleet = DockerEngine("1.12", "1.43"), DockerEngine("1.24", "1.47")
    async with running("docker-engine", *fleet) as stand:
        session = await libraries.session("docker", stand.base, "ping", "containers", "volume", "range")

        assert (session.values(), session.version) == ([True, [], "data", ["1.24", "1.43"]], "1.43")
        assert stand.executed() == ["1.43"] * 3

        fleet[0].versions = ("1.24", "1.47")
        await stand.until_offered("1.24-1.47")
        session = await libraries.session("docker", stand.base, "containers")

        assert (session.values(), session.version) == ([[]], "1.47")
        assert stand.executed() == ["1.47"]


async def test_docker_that_is_told_a_version_gets_it_or_the_daemons_sentence(libraries: Libraries) -> None:
    async with running("docker-engine", DockerEngine("1.12", "1.43"), DockerEngine("1.24", "1.47")) as stand:
        session = await libraries.session("docker", stand.base, "containers", version="1.30")
        assert (session.values(), stand.executed()) == ([[]], ["1.30"])

        refused = await libraries.session("docker", stand.base, "containers", version="1.45")
        error = refused.only_error()
        assert error.error == "APIError"
        assert "client version 1.45 is too new. Maximum supported API version is 1.43" in error.text
        assert stand.executed() == []


async def test_elasticsearch_8_works_throughout_an_upgrade_and_9_after_it(
    libraries: Libraries,
) -> None:
    fleet = Elasticsearch("8.19.0"), Elasticsearch("9.1.0")
    calls = ("search", "index", "bulk", "info", "cat")
    told = ["application/vnd.elasticsearch+json;compatible-with={}"] * 4
    told.append("text/vnd.elasticsearch+plain;compatible-with={}")
    async with running("elasticsearch", *fleet) as stand:
        eight = await libraries.session("elasticsearch", stand.base, *calls, environment=OF_ELASTICSEARCH_8)
        assert eight.values() == [each.format(8) for each in told]
        assert stand.executed() == ["8"] * len(calls)

        nine = await libraries.session("elasticsearch", stand.base, "search")
        assert nine.only_error().error == "BadRequestError"
        assert stand.executed() == []

        fleet[0].upgrade("9.1.0")
        await stand.until_offered("8-9")
        for environment, version in ELASTIC_OWN.items():
            session = await libraries.session("elasticsearch", stand.base, *calls, environment=environment)
            assert session.values() == [each.format(version) for each in told]
            assert stand.executed() == [version] * len(calls)


async def test_pygithub_without_and_with_a_date(libraries: Libraries) -> None:
    old, new = "2022-11-28", "2026-03-10"
    fleet = GitHub(old), GitHub(old, new)
    async with running("github", *fleet) as stand:
        silent = await libraries.session("pygithub", stand.base, "user", "selected")
        assert (silent.values(), stand.executed()) == (["octocat", old], [old, old])

        refused = (await libraries.session("pygithub", stand.base, "user", version=new)).only_error()
        assert refused.error == "GithubException"
        assert f"Supported versions: {old}." in refused.text
        assert stand.executed() == []

        fleet[0].versions = (old, new)
        await stand.until_offered(f"{old}, {new}")
        session = await libraries.session("pygithub", stand.base, "selected", version=new)
        assert (session.values(), stand.executed()) == ([new], [new])


async def test_stripe_as_pinned_and_as_it_comes(libraries: Libraries) -> None:
    served = ("2023-10-16", "2024-06-20", "2024-09-30.acacia", "2025-03-31.basil")
    async with running("stripe", Stripe(*served), Stripe(*served, STRIPE_OWN)) as stand:
        session = await libraries.session("stripe", stand.base, "balance", version="2025-03-31.basil")
        assert (session.values(), stand.executed()) == (["2025-03-31.basil"], ["2025-03-31.basil"])

        refused = await libraries.session("stripe", stand.base, "balance")
        assert refused.version == STRIPE_OWN
        error = refused.only_error()
        assert error.error == "InvalidRequestError"
        assert f"Invalid Stripe API version: {STRIPE_OWN}" in error.text
        assert stand.executed() == []
