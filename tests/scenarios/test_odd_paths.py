"""A path at which a server always answers with one version: it is not taken for the whole server."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
from typing import Final

from tests.scenarios.fakes import OWN, Head, Ironic
from tests.scenarios.testbed import in_front_of

ODD: Final = "/v1/odd/1"
SELDOM: Final = "30s"
"""No regular probe runs again during these tests."""
ANSWERED: Final = 3.0
"""Seconds in which a probe that was asked for has answered."""


class OddIronic(Ironic):
    """Everything below `/v1/odd` answers with 1.1, whatever was requested, as Manila's `/v1` does."""

    def _response(self, head: Head) -> bytes:
        served = head.get(OWN)
        response = super()._response(head)
        if head.target.startswith("/v1/odd"):
            response = response.replace(f"{OWN}: {served}".encode(), f"{OWN}: 1.1".encode())
        return response


async def test_R_D1_one_odd_path_takes_no_member_out_for_the_other_paths() -> None:
    """503 only until the probe has answered, which the contradiction asks for. Afterwards the same path
    changes nothing any more."""
    async with in_front_of(OddIronic(90), interval=SELDOM) as testbed:
        assert (await testbed.at("1.72", ODD)).get(OWN) == "1.1", "the client is told what was served"
        async with asyncio.timeout(ANSWERED):
            while (await testbed.at("1.72")).status != 200:
                pass

        for _ in range(20):
            assert (await testbed.at("1.72", ODD)).get(OWN) == "1.1"
            assert (await testbed.at("1.72")).get(OWN) == "1.72"
