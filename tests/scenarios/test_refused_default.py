"""`default_version: refused`: a client that names no version is refused, and may still ask for the range."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from tests.scenarios import nova_fleet
from tests.scenarios.fakes import Ironic
from tests.scenarios.nova_fleet import Nova
from tests.scenarios.testbed import Testbed, in_front_of


@pytest.mark.parametrize("dialect", ["ironic", "nova"])
async def test_version_roots_are_answered_where_requests_without_a_version_are_refused(dialect: str) -> None:
    bed: AbstractAsyncContextManager[Testbed]
    if dialect == "ironic":
        bed = in_front_of(Ironic(58), default_version="refused")
    else:
        bed = nova_fleet.in_front_of(Nova(60), default_version="refused")
    roots = ("/", "/v1", "/v1/") if dialect == "ironic" else ("/", "/v2.1/")
    async with bed as testbed:
        assert (await testbed.at(None)).status in {400, 406}
        for root in roots:
            assert (await testbed.at(None, root)).status == 200, root
