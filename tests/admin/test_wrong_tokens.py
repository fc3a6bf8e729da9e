"""Wrong admin tokens, by the form of the operations page and by Authorization: one limiter for both
(threats R3-T5)."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from gateway.admin import AdminAccess, create_app
from gateway.admin.guard import AT_ONCE, PER_SECOND
from gateway.keys.secrets import Secret
from tests.admin.testbed import AdminTestbed, Clock, mixed_fleet
from tests.admin.ui.visitor import TOKEN, Page, Visitor, serving
from tests.kit.metrics import Scrape

RIGHT = {"Authorization": f"Bearer {TOKEN}"}
GUESS = "a guess"
WRONG = {"Authorization": f"Bearer {GUESS}"}


class Door:
    """The admin listener with a token, and two ways to try one."""

    def __init__(self, visitor: Visitor, clock: Clock) -> None:
        self.visitor = visitor
        self.clock = clock

    async def by_form(self, token: str = GUESS) -> Page:
        return await replace(self.visitor).sign_in(token)

    async def by_api(self, token: str = GUESS, path: str = "/status") -> Page:
        return await self.visitor.get(path, {"Authorization": f"Bearer {token}"})

    async def counted(self) -> float:
        """Refusals in `skewgate_admin_errors_total{reason="unauthorized"}`."""
        text = (await self.by_api(TOKEN, "/metrics")).text
        return Scrape(text).by("reason", "skewgate_admin_errors_total")["unauthorized"]


@asynccontextmanager
async def door() -> AsyncIterator[Door]:
    bed, clock = AdminTestbed(mixed_fleet()), Clock()
    context = replace(bed.context(), access=AdminAccess(token=lambda: Secret(TOKEN)))
    async with serving(create_app(context, clock=clock), bed) as visitor:
        yield Door(visitor(), clock)


async def test_R3_T5_a_right_token_is_accepted_however_many_wrong_ones_there_were() -> None:
    async with door() as tried:
        for _ in range(3 * AT_ONCE):
            await tried.by_form()
            await tried.by_api()
        assert [(await tried.by_form()).status, (await tried.by_api()).status] == [429, 429]

        assert (await tried.by_form(TOKEN)).status == 303
        assert (await tried.by_api(TOKEN)).status == 200
        # A right one takes nothing from the limit, and gives nothing back.
        assert [(await tried.by_form()).status, (await tried.by_api()).status] == [429, 429]


async def test_R3_T5_form_and_api_have_one_limit_and_one_count() -> None:
    async with door() as tried:
        ways = [tried.by_form, tried.by_api] * (AT_ONCE // 2)
        assert [(await way()).status for way in ways] == [401] * AT_ONCE
        assert [(await way()).status for way in (tried.by_form, tried.by_api)] == [429, 429]
        assert await tried.counted() == AT_ONCE + 2

        tried.clock.now += 1.0 / PER_SECOND
        assert (await tried.by_api()).status == 401
        assert (await tried.by_form()).status == 429
        tried.clock.now += 1.0 / PER_SECOND
        assert (await tried.by_form()).status == 401
        assert (await tried.by_api()).status == 429
        assert await tried.counted() == AT_ONCE + 6

        tried.clock.now += AT_ONCE / PER_SECOND
        assert [(await way()).status for way in ways] == [401] * AT_ONCE


async def test_R3_T5_a_refusal_says_when_to_try_again_and_repeats_nothing() -> None:
    async with door() as tried:
        for _ in range(AT_ONCE):
            await tried.by_api()
        for page in (await tried.by_form(), await tried.by_api()):
            assert (page.status, page.headers["Retry-After"]) == (429, "1")
            assert "oo many wrong tokens" in page.text
            assert GUESS not in page.text
            assert "canary" not in page.text
        below = await tried.by_api(path="/ui/events")
        assert (below.status, below.headers["Retry-After"]) == (429, "1")


@pytest.mark.parametrize(
    "path, headers, status",
    [
        ("/status", {}, 401),  # nothing was guessed
        ("/livez", WRONG, 200),  # nobody needs a token here, so that the response tells nothing of it
        ("/ui/sign-in", WRONG, 200),
        ("/status", RIGHT, 200),
    ],
)
async def test_R3_T5_what_tries_no_wrong_token_counts_as_none(
    path: str, headers: dict[str, str], status: int
) -> None:
    async with door() as tried:
        for _ in range(AT_ONCE + 1):
            assert (await tried.visitor.get(path, headers)).status == status
        assert (await tried.by_api()).status == 401


@pytest.mark.parametrize("authorization", ["Basic c2tld2dhdGU6Z3Vlc3M=", "Bearer", "guess", ""])
async def test_R3_T5_every_credential_that_is_not_the_token_counts(authorization: str) -> None:
    async with door() as tried:
        headers = {"Authorization": authorization}
        statuses = [(await tried.visitor.get("/status", headers)).status for _ in range(AT_ONCE + 1)]
        assert statuses == [401] * AT_ONCE + [429]
