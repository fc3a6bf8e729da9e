"""What a probe reads of a response: as much as of a discovery document, and no more."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from aiohttp import web

from gateway.controlplane.prober import Prober
from gateway.core.dialect import Advertisement
from tests.controlplane.fakes import Behaviour, ironic, service, serving
from tests.controlplane.test_prober import ProbeResults
from tests.kit.ironic import holder_of, member, upto

LIMIT = 256 * 1024
"""The default of `limits.document`."""


def sized(size: int, *, chunked: bool = False) -> Behaviour:
    """The response of an Ironic whose document is exactly `size` bytes long."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = await ironic()(request)
        assert isinstance(response, web.Response)
        empty = json.dumps({"id": "v1", "x": ""})
        response.text = json.dumps({"id": "v1", "x": "x" * (size - len(empty))})
        if chunked:
            response.enable_chunked_encoding()
        return response

    return respond


async def probed(behaviour: Behaviour, max_document: int = LIMIT) -> tuple[str | None, Advertisement | None]:
    """The result of one probe, and what is known after it."""
    async with serving(behaviour) as backend:
        one = service(backend.backend())
        one = replace(one, limits=replace(one.limits, document=max_document))
        snapshot_holder, results = holder_of(one), ProbeResults()
        async with Prober(snapshot_holder, results, [one]):
            await results.probe_ended()
        return results.reasons[0], member(snapshot_holder).advertisement


@pytest.mark.parametrize("chunked", [False, True])
async def test_R_B12_a_probe_reads_256_kib(chunked: bool) -> None:
    assert await probed(sized(LIMIT, chunked=chunked)) == (None, upto(58))


@pytest.mark.parametrize("chunked", [False, True])
async def test_R_B12_a_probe_reads_no_more_than_a_document_may_have(chunked: bool) -> None:
    assert await probed(sized(LIMIT + 1, chunked=chunked)) == ("too_large", None)


async def test_R_B12_the_limit_is_that_of_the_configuration() -> None:
    assert await probed(sized(2048), max_document=2048) == (None, upto(58))
    assert await probed(sized(2049), max_document=2048) == ("too_large", None)
