"""config/examples/stripe.yaml and shopify.yaml: no document advertises versions, so the file declares them.

A reload moves the offer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.scenarios.testbed import REPEATS
from tests.worked.fleet import WorkedTestbed, environment, example, running
from tests.worked.header_servers import Stripe
from tests.worked.path_servers import Shopify

VERSION = "Stripe-Version"
OLD_VERSIONS = ("2023-10-16", "2024-06-20", "2024-09-30.acacia", "2025-03-31.basil")
NEW_VERSIONS = (*OLD_VERSIONS, "2025-09-30.clover", "2026-02-25.clover", "2026-10-28.endive")
BOTH = ", ".join(OLD_VERSIONS)
"""The offer in a refusal. Operators see its two ends, because no name between them is missing."""


def reload(
    testbed: WorkedTestbed, file: Path, patch: pytest.MonkeyPatch, name: str, old: str, new: str
) -> None:
    """Change one line of the example, as an operator would, and reload."""
    for variable, value in environment(*testbed.servers).items():
        patch.setenv(variable, value)
    text = example(name)
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    testbed.gateway.on_sighup()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


# --- Stripe ------------------------------------------------------------------------------------------------


@pytest.fixture
async def payments(file: Path) -> AsyncIterator[WorkedTestbed]:
    async with running("stripe", Stripe(*OLD_VERSIONS), Stripe(*NEW_VERSIONS), source=file) as testbed:
        assert testbed.offer == f"{OLD_VERSIONS[0]}..{OLD_VERSIONS[-1]}"
        yield testbed


@pytest.mark.parametrize(
    "requested, served", [(None, OLD_VERSIONS[0]), *((version, version) for version in OLD_VERSIONS)]
)
async def test_versions_that_both_serve_and_the_default_of_the_account(
    payments: WorkedTestbed, requested: str | None, served: str
) -> None:
    response = await payments.repeated("/v1/balance", *([] if requested is None else [(VERSION, requested)]))

    assert (response.status, response.get(VERSION), response.get("Vary")) == (200, served, VERSION)
    assert payments.executed() == [served] * REPEATS


@pytest.mark.parametrize(
    "requested", ["2026-10-28.endive", "2022-11-15", "2024-09-30", "2024-01-01", "latest"]
)
async def test_a_version_that_not_both_serve_is_refused(payments: WorkedTestbed, requested: str) -> None:
    response = await payments.repeated("/v1/balance", (VERSION, requested))

    error = {
        "type": "invalid_request_error",
        "message": f"Invalid Stripe API version: {requested}. Served here: {BOTH}.",
    }
    assert (response.status, json.loads(response.body)) == (400, {"error": error})
    assert payments.forwarded == []


async def test_a_reload_after_the_upgrade_moves_the_offer(
    payments: WorkedTestbed, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.servers[0].versions = NEW_VERSIONS
    reload(
        payments,
        file,
        monkeypatch,
        "stripe",
        "2023-10-16..2025-03-31.basil ",
        "2023-10-16..2026-10-28.endive ",
    )
    await payments.until_offered(f"{NEW_VERSIONS[0]}..{NEW_VERSIONS[-1]}")

    assert (await payments.repeated("/v1/balance", (VERSION, "2026-10-28.endive"))).get(
        VERSION
    ) == "2026-10-28.endive"
    assert payments.executed() == ["2026-10-28.endive"] * REPEATS
    assert (await payments.repeated("/v1/balance")).get(VERSION) == "2023-10-16"


# --- Shopify -----------------------------------------------------------------------------------------------

SERVED = "X-Shopify-API-Version"


@pytest.fixture
async def shop(file: Path) -> AsyncIterator[WorkedTestbed]:
    """2023-07 to 2024-04 and 2023-10 to 2024-07: both serve three months."""
    old = Shopify("2023-07", "2023-10", "2024-01", "2024-04")
    new = Shopify("2023-10", "2024-01", "2024-04", "2024-07")
    async with running("shopify", old, new, source=file) as testbed:
        assert testbed.offer == "2023-10, 2024-01, 2024-04"
        yield testbed


def products(month: str) -> str:
    return f"/admin/api/{month}/products.json?limit=1"


@pytest.mark.parametrize(
    "requested, served",
    [
        ("2023-10", "2023-10"),
        ("2024-01", "2024-01"),
        ("2024-04", "2024-04"),
        ("2023-07", "2023-10"),
        ("2019-04", "2023-10"),
        ("2023-11", "2024-01"),
    ],
)
async def test_an_old_month_falls_forward_and_the_client_sees_the_served_one(
    shop: WorkedTestbed, requested: str, served: str
) -> None:
    """The old server would serve 2023-07, the new one would fall forward. Here the response is the same."""
    response = await shop.repeated(products(requested))

    assert (response.status, response.get(SERVED)) == (200, served)
    assert shop.executed() == [served] * REPEATS
    assert {head.target for head in shop.forwarded} == {products(served)}


@pytest.mark.parametrize(
    "requested", ["2024-07", "2030-01", "2024-13", "24-01", "unstable", "latest", "2024-01-01"]
)
async def test_a_month_that_is_not_served_yet_and_a_malformed_one_are_not_found(
    shop: WorkedTestbed, requested: str
) -> None:
    response = await shop.repeated(products(requested))

    assert (response.status, json.loads(response.body)) == (404, {"errors": "Not Found"})
    assert shop.forwarded == []


async def test_a_path_that_cannot_hold_a_month_goes_to_any_server(shop: WorkedTestbed) -> None:
    response = await shop.send("/admin/products.json")

    assert (response.status, [response.get(SERVED)]) == (200, shop.executed())


async def test_a_reload_after_the_upgrade_moves_both_ends(
    shop: WorkedTestbed, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.servers[0].versions = shop.servers[1].versions
    reload(
        shop,
        file,
        monkeypatch,
        "shopify",
        "2023-07, 2023-10, 2024-01, 2024-04",
        "2023-10, 2024-01, 2024-04, 2024-07",
    )
    await shop.until_offered("2023-10, 2024-01, 2024-04, 2024-07")

    assert (await shop.repeated(products("2024-07"))).get(SERVED) == "2024-07"
    assert shop.executed() == ["2024-07"] * REPEATS
    assert (await shop.repeated(products("2023-07"))).get(SERVED) == "2023-10"
