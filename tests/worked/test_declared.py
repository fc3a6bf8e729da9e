"""config/examples/stripe.yaml and shopify.yaml: no document tells versions, so the file does, and a reload
moves the offer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worked.fleet import TRIES, WorkedStand, environment, example, running
from tests.worked.header_servers import Stripe
from tests.worked.path_servers import Shopify

ASK = "Stripe-Version"
OF_OLD = ("2023-10-16", "2024-06-20", "2024-09-30.acacia", "2025-03-31.basil")
OF_NEW = (*OF_OLD, "2025-09-30.clover", "2026-02-25.clover", "2026-10-28.endive")
BOTH = ", ".join(OF_OLD)
"""As clients are told; people are told the two ends, because nothing is missing between them."""


def reload(stand: WorkedStand, file: Path, patch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """The example with one line changed, as an operator would change it."""
    for variable, value in environment(*stand.servers).items():
        patch.setenv(variable, value)
    text = example(name)
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    stand.gateway.hang_up()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


# --- Stripe ------------------------------------------------------------------------------------------------


@pytest.fixture
async def payments(file: Path) -> AsyncIterator[WorkedStand]:
    async with running("stripe", Stripe(*OF_OLD), Stripe(*OF_NEW), source=file) as stand:
        assert stand.offer == f"{OF_OLD[0]}..{OF_OLD[-1]}"
        yield stand


@pytest.mark.parametrize("said, served", [(None, OF_OLD[0]), *((each, each) for each in OF_OLD)])
async def test_what_both_serve_and_the_default_of_the_account(
    payments: WorkedStand, said: str | None, served: str
) -> None:
    reply = await payments.same("/v1/balance", *([] if said is None else [(ASK, said)]))

    assert (reply.status, reply.get(ASK), reply.get("Vary")) == (200, served, ASK)
    assert payments.executed() == [served] * TRIES


@pytest.mark.parametrize("said", ["2026-10-28.endive", "2022-11-15", "2024-09-30", "2024-01-01", "latest"])
async def test_what_only_the_new_one_or_none_serves_is_refused(payments: WorkedStand, said: str) -> None:
    reply = await payments.same("/v1/balance", (ASK, said))

    error = {
        "type": "invalid_request_error",
        "message": f"Invalid Stripe API version: {said}. Served here: {BOTH}.",
    }
    assert (reply.status, json.loads(reply.body)) == (400, {"error": error})
    assert payments.asked == []


async def test_a_reload_after_the_upgrade_moves_the_offer(
    payments: WorkedStand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.servers[0].versions = OF_NEW
    reload(
        payments, file, monkeypatch, "stripe",
        "2023-10-16..2025-03-31.basil ", "2023-10-16..2026-10-28.endive ",
    )  # fmt: skip
    await payments.until_offered(f"{OF_NEW[0]}..{OF_NEW[-1]}")

    assert (await payments.same("/v1/balance", (ASK, "2026-10-28.endive"))).get(ASK) == "2026-10-28.endive"
    assert payments.executed() == ["2026-10-28.endive"] * TRIES
    assert (await payments.same("/v1/balance")).get(ASK) == "2023-10-16"


# --- Shopify -----------------------------------------------------------------------------------------------

SERVED = "X-Shopify-API-Version"


@pytest.fixture
async def shop(file: Path) -> AsyncIterator[WorkedStand]:
    """2023-07 to 2024-04 and 2023-10 to 2024-07: three months are served by both."""
    old = Shopify("2023-07", "2023-10", "2024-01", "2024-04")
    new = Shopify("2023-10", "2024-01", "2024-04", "2024-07")
    async with running("shopify", old, new, source=file) as stand:
        assert stand.offer == "2023-10, 2024-01, 2024-04"
        yield stand


def products(month: str) -> str:
    return f"/admin/api/{month}/products.json?limit=1"


@pytest.mark.parametrize(
    "said, served",
    [
        ("2023-10", "2023-10"),
        ("2024-01", "2024-01"),
        ("2024-04", "2024-04"),
        ("2023-07", "2023-10"),
        ("2019-04", "2023-10"),
        ("2023-11", "2024-01"),
    ],
)
async def test_an_old_month_falls_forward_and_the_client_is_told(
    shop: WorkedStand, said: str, served: str
) -> None:
    """2023-07 would be served by the old one and fall forward at the new one: here it is one answer."""
    reply = await shop.same(products(said))

    assert (reply.status, reply.get(SERVED)) == (200, served)
    assert shop.executed() == [served] * TRIES
    assert {head.target for head in shop.asked} == {products(served)}


@pytest.mark.parametrize(
    "said", ["2024-07", "2030-01", "2024-13", "24-01", "unstable", "latest", "2024-01-01"]
)
async def test_what_is_not_served_yet_and_what_is_no_month_is_not_there(shop: WorkedStand, said: str) -> None:
    reply = await shop.same(products(said))

    assert (reply.status, json.loads(reply.body)) == (404, {"errors": "Not Found"})
    assert shop.asked == []


async def test_a_path_without_room_for_a_month_tells_what_it_got(shop: WorkedStand) -> None:
    reply = await shop.ask("/admin/products.json")

    assert (reply.status, [reply.get(SERVED)]) == (200, shop.executed())


async def test_a_reload_after_the_upgrade_moves_both_ends(
    shop: WorkedStand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.servers[0].versions = shop.servers[1].versions
    reload(
        shop, file, monkeypatch, "shopify", "2023-07, 2023-10, 2024-01, 2024-04",
        "2023-10, 2024-01, 2024-04, 2024-07",
    )  # fmt: skip
    await shop.until_offered("2023-10, 2024-01, 2024-04, 2024-07")

    assert (await shop.same(products("2024-07"))).get(SERVED) == "2024-07"
    assert shop.executed() == ["2024-07"] * TRIES
    assert (await shop.same(products("2023-07"))).get(SERVED) == "2023-10"
