"""The clients of the demonstration, each directly at a server, and how they judge what comes back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import aiohttp
import pytest
from aiohttp import web
from pytest_aiohttp import AiohttpClient, AiohttpRawServer

from gateway.demo import catalog
from gateway.demo.catalog import OLD_CATALOG, CatalogServer
from gateway.demo.clients import (
    KINDS,
    ApiResponse,
    Client,
    ClientContext,
    CouldServe,
    Judgement,
    LatestClient,
    NewClient,
    NewShopClient,
    OldClient,
    OldShopClient,
    Result,
    UnversionedClient,
)
from gateway.demo.fleet import BAREMETAL
from gateway.demo.ironic import HIGHEST, LOWEST, SERVED
from tests.demo.conftest import Fleet, url_of
from tests.kit.processes import TIMEOUT

Headers = dict[str, str]


def always(number: int, since: float) -> bool:
    return True


def never(number: int, since: float) -> bool:
    return False


async def judgements(
    kind: type[Client], url: str, could_serve: CouldServe = always, times: int = 1
) -> list[Judgement]:
    """What became of the requests of a client of this kind after so many actions."""
    found: list[Judgement] = []

    def report(kind: type[Client], version: str, answer: ApiResponse, judgement: Judgement) -> None:
        found.append(judgement)

    client = kind(ClientContext(url, Random(1), could_serve, report))
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT)) as session:
        for _ in range(times):
            await client.act(session)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_a_correct_server_loses_nothing(
    kind: type[Client], fleet: Fleet, aiohttp_client: AiohttpClient
) -> None:
    shop = await aiohttp_client(CatalogServer("catalog-1", OLD_CATALOG).application())
    for server in fleet if kind.service == BAREMETAL else [shop]:
        found = await judgements(kind, url_of(server), times=8)
        assert len(found) >= 8
        assert not [each for each in found if each.result is Result.LOST]


async def test_the_new_client_does_as_ironicclient_does(
    fleet: Fleet, aiohttp_raw_server: AiohttpRawServer
) -> None:
    seen: list[tuple[str, str]] = []

    async def forward(request: web.BaseRequest) -> web.Response:
        version = request.headers.get(SERVED, "")
        seen.append((request.path, version))
        response = await fleet.old.get(request.path, headers={SERVED: version} if version else {})
        headers = {
            name: response.headers[name] for name in (SERVED, LOWEST, HIGHEST) if name in response.headers
        }
        return web.Response(status=response.status, body=await response.read(), headers=headers)

    server = await aiohttp_raw_server(forward)
    found = await judgements(NewClient, f"http://{server.host}:{server.port}", times=3)

    assert seen == [
        ("/v1/nodes", "1.115"),
        ("/v1", ""),
        *[("/v1/nodes", "1.82")] * 3,
    ]
    assert [each.result for each in found] == [Result.REFUSED, *[Result.ANSWERED] * 4]


Respond = Callable[[web.BaseRequest], web.Response]


async def url_of_responder(respond: Respond, aiohttp_raw_server: AiohttpRawServer) -> str:
    async def answer(request: web.BaseRequest) -> web.Response:
        return respond(request)

    server = await aiohttp_raw_server(answer)
    return f"http://{server.host}:{server.port}"


def fixed(status: int, headers: Headers) -> Respond:
    return lambda request: web.Response(status=status, headers=headers)


def shop_of(newest: str, status: int, served: str = "") -> Respond:
    """A shop that promises versions up to `newest` and then answers so."""

    def respond(request: web.BaseRequest) -> web.Response:
        if request.path == "/":
            return web.json_response({"minimum": "1", "maximum": newest})
        return web.Response(
            status=status,
            headers={catalog.VERSION: served, catalog.OLDEST: "1", catalog.NEWEST: newest},
        )

    return respond


def newest_goes_back() -> Respond:
    newest = iter(("1.90", "1.82"))

    def respond(request: web.BaseRequest) -> web.Response:
        version = next(newest)
        return web.Response(headers={SERVED: version, LOWEST: "1.1", HIGHEST: version})

    return respond


OLD_RANGE = {LOWEST: "1.1", HIGHEST: "1.82"}


WRONG = "served another version"
BROKEN = "a version shown before was refused"


@pytest.mark.parametrize(
    "kind, respond, reason, otherwise",
    [
        (UnversionedClient, fixed(200, {SERVED: "1.82", **OLD_RANGE}), "not the oldest version", Result.LOST),
        (UnversionedClient, fixed(200, OLD_RANGE), "not the oldest version", Result.LOST),
        (UnversionedClient, fixed(503, {}), "status 503", Result.REFUSED),
        (UnversionedClient, fixed(404, {}), "status 404", Result.LOST),
        (OldClient, fixed(200, {SERVED: "1.1", **OLD_RANGE}), WRONG, Result.LOST),
        (OldClient, fixed(200, OLD_RANGE), WRONG, Result.LOST),
        (OldClient, fixed(406, OLD_RANGE), BROKEN, Result.REFUSED),
        (OldClient, fixed(504, {}), "status 504", Result.REFUSED),
        (
            LatestClient,
            fixed(200, {SERVED: "1.82", LOWEST: "1.1", HIGHEST: "1.90"}),
            "not the newest version",
            Result.LOST,
        ),
        (LatestClient, fixed(406, OLD_RANGE), "status 406", Result.LOST),
        (NewClient, fixed(200, {SERVED: "1.1", **OLD_RANGE}), WRONG, Result.LOST),
        (NewShopClient, shop_of("7", 406), BROKEN, Result.REFUSED),
        (NewShopClient, shop_of("7", 200, "4"), WRONG, Result.LOST),
        (NewShopClient, shop_of("7", 502), "status 502", Result.REFUSED),
        (NewShopClient, shop_of("", 200), "no range in the document", Result.LOST),
        (OldShopClient, shop_of("7", 200, "7"), WRONG, Result.LOST),
    ],
)
async def test_a_broken_promise_is_a_loss(
    kind: type[Client],
    respond: Respond,
    reason: str,
    otherwise: Result,
    aiohttp_raw_server: AiohttpRawServer,
) -> None:
    """`otherwise`: what it is where no server could serve it. What is wrong anyway stays so."""
    url = await url_of_responder(respond, aiohttp_raw_server)

    found = await judgements(kind, url)
    unkept = await judgements(kind, url, never)

    assert (found[-1].result, found[-1].reason) == (Result.LOST, reason)
    assert unkept[-1].result is otherwise


async def test_a_refusal_tells_the_range(aiohttp_raw_server: AiohttpRawServer) -> None:
    found = await judgements(NewClient, await url_of_responder(fixed(406, {}), aiohttp_raw_server))

    assert found[0].reason == "refused without a range"


@pytest.mark.parametrize("could_serve, result", [(always, Result.LOST), (never, Result.ANSWERED)])
async def test_latest_goes_back_only_when_no_server_serves_the_newer_version(
    could_serve: CouldServe, result: Result, aiohttp_raw_server: AiohttpRawServer
) -> None:
    found = await judgements(
        LatestClient, await url_of_responder(newest_goes_back(), aiohttp_raw_server), could_serve, 2
    )

    assert [each.result for each in found] == [Result.ANSWERED, result]


async def test_no_answer_at_all_is_a_loss(fleet: Fleet) -> None:
    url = url_of(fleet.old)
    await fleet.old.close()

    (found,) = await judgements(UnversionedClient, url, never)

    assert (found.result, found.reason) == (Result.LOST, "no response")


def test_the_name_of_each_kind_fits_its_column() -> None:
    assert all(len(kind.kind) <= 14 for kind in KINDS)
