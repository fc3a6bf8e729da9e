"""The readers, the judge and the cases of the differential test can fail: each is tried on what it must find.

Every trap here is a request that one framework reads otherwise than another. No gateway is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.differential.apis import APIS, Api, Header, Location, Parameter, Path, Query
from tests.differential.cases import cases
from tests.differential.draft import Case
from tests.differential.header_mutations import HEADER_MUTATIONS, REQUEST_MUTATIONS, SIGNATURES
from tests.differential.judge import disagreements, request_aliases, response_disagreements
from tests.differential.media_type_mutations import MEDIA_TYPE_MUTATIONS
from tests.differential.readers.engines import engines
from tests.differential.readers.readers import PYTHON_READERS, Reader
from tests.differential.readers.view import View
from tests.differential.target_mutations import PATH_MUTATIONS, QUERY_MUTATIONS
from tests.differential.testbed import Result


def written(api: Api, version: str) -> bytes:
    """A request with this version wherever servers of the API look."""
    path, query, lines = "/anything", [], []
    for location in api.locations:
        match location:
            case Header(name, spelling, _, True):
                lines.append(f"{name}: {spelling.format(version)}")
            case Query(name, True):
                query.append(f"{name}={version}")
            case Parameter(name, types):
                kind = types[0] if types else "application/json"
                lines += [f"{field}: {kind}; {name}={version}" for field in ("Accept", "Content-Type")]
            case Path(prefix, before):
                path = f"{prefix}/{before}{version}/anything"
            case _:
                pass
    target = f"{path}?{'&'.join(query)}" if query else path
    return request(target, *lines, host=api.host)


def request(target: str, *lines: str, host: str = "any.example") -> bytes:
    return "\r\n".join((f"GET {target} HTTP/1.1", f"Host: {host}", *lines, "", "")).encode("latin-1")


def result(api: Api, forwarded: bytes, negotiated: str, response: bytes = b"") -> Result:
    return Result(Case(0, api, "GET / HTTP/1.1", (), b"", (), ()), response, forwarded, negotiated)


async def view_of(reader: Reader, raw: bytes) -> View:
    (view,) = await reader.read([raw])
    assert view is not None, f"{reader.name} refuses {raw!r}"
    return view


async def assert_reads_plain_requests(readers: Sequence[Reader]) -> None:
    """What is written everywhere is read everywhere, and another version in its place is a disagreement."""
    for reader in readers:
        for api in APIS.values():
            first, second, *_ = api.good
            raw = written(api, first)
            view = await view_of(reader, raw)
            assert not list(disagreements(result(api, raw, first), reader.name, view))
            locations = {
                repr(each) for each in api.locations if each.sent and view.versions(each) is not None
            }
            found = {each.location for each in disagreements(result(api, raw, second), reader.name, view)}
            assert found >= locations, f"{reader.name} does not notice another version of {api.name}"
            silent = {each.location for each in disagreements(result(api, raw, ""), reader.name, view)}
            assert silent >= locations, f"{reader.name} does not notice a version of {api.name}"


async def test_python_readers_read_plain_requests() -> None:
    await assert_reads_plain_requests(PYTHON_READERS)


@pytest.mark.engines
async def test_engines_read_plain_requests() -> None:
    async with engines() as running:
        await assert_reads_plain_requests(running)


# --- traps -------------------------------------------------------------------------------------------------

_VERSION: Final = Parameter("version")
_PREFIX: Final = Path("/admin/office/kiss")

TRAPS: Final[tuple[tuple[str, bytes, Location], ...]] = (
    ("WebOb", request("/", "X-Api-Version: v2", "X_Api_Version: v9"), Header("X-Api-Version")),
    ("Django", request("/", "X_Api_Version: v9"), Header("X-Api-Version")),
    ("Starlette", request("/", "X-Api-Version: 2", "x-api-version: 9"), Header("X-Api-Version")),
    ("Django", request("/", "Accept: a/b; version=2;\xa0version*=UTF-8''9"), _VERSION),
    ("Starlette", request("/", "Accept: a/b;version=2;\x85version=9"), _VERSION),
    ("aiohttp", request("/", 'Content-Type: a/b; x"; version="9"; y="'), _VERSION),
    ("Werkzeug", request("/", "Accept: a/b;version*0=9"), _VERSION),
    ("Django", request("/adm%C4%B1n/office/kiss/9/x"), _PREFIX),
    ("Django", request("/ADMIN/office/ki%C5%BFs/9"), _PREFIX),
    ("aiohttp", request("/?api%5Fversion=9"), Query("api_version")),
)
"""A framework, a request, and where it finds a 9."""

ENGINE_TRAPS: Final[tuple[tuple[str, bytes, Location], ...]] = (
    ("PHP", request("/", "X-Api-Version: 2", "X.Api.Version: 9"), Header("X-Api-Version")),
    ("PHP", request("/", "X_Api_Version: 9"), Header("X-Api-Version")),
    ("PHP", request("/?api_version=2&api[version=9"), Query("api_version")),
    ("PHP", request("/?api%20version=9"), Query("api_version")),
    ("PHP", request("/?version%00x=9"), Query("version")),
    ("Rack", request("/?[version]=9"), Query("version")),
    ("Rack", request("/?version]=9"), Query("version")),
    ("Rack", request("/?%5B%5Dversion=9"), Query("version")),
    ("Node", request("/?version[]=9"), Query("version")),
    ("Node", request("/?[version]=9"), Query("version")),
    ("Node", request("/??version=9"), Query("version")),
    ("Node", request("/ADMIN/office/kiss/9/x"), _PREFIX),
    ("Rack", request("/admin//office/kiss/9/x"), _PREFIX),
    ("Rack", request("/admin/office/ki%C3%9F/9/x"), _PREFIX),
    ("PHP", request("/admin/office/%E2%84%AAiss/9"), _PREFIX),
)


async def assert_finds_traps(readers: Sequence[Reader], traps: Sequence[tuple[str, bytes, Location]]) -> None:
    by_name = {reader.name: reader for reader in readers}
    missed = []
    for name, raw, location in traps:
        found = (await view_of(by_name[name], raw)).versions(location)
        if found is None or "9" not in " ".join(found):
            missed.append(f"{name} reads {found} in {raw!r}")
    assert not missed, "\n".join(missed)


async def test_python_readers_find_what_only_they_read() -> None:
    await assert_finds_traps(PYTHON_READERS, TRAPS)


@pytest.mark.engines
async def test_engines_find_what_only_they_read() -> None:
    async with engines() as running:
        await assert_finds_traps(running, ENGINE_TRAPS)


# --- the judge ---------------------------------------------------------------------------------------------


def test_a_twin_to_the_backend_is_a_disagreement() -> None:
    api = APIS["header"]
    forwarded = request("/", "X-Api-Version: v2", "X!Api*Version: v9")

    assert [each.found for each in request_aliases(result(api, forwarded, "2"))] == ["X!Api*Version"]
    assert not list(request_aliases(result(api, written(api, "2"), "2")))


@pytest.mark.parametrize(
    "line", ["X_Api_Served: 9", "X.API.Served: 2", "X-Api-Served: 9", "X-Api-Served: 2\r\nX-Api-Served: 2"]
)
def test_a_twin_or_another_version_to_the_client_is_a_disagreement(line: str) -> None:
    api = APIS["header"]
    head = f"HTTP/1.1 200 OK\r\n{line}\r\nX-Api-Lowest: 1\r\n\r\n".encode()
    good = b"HTTP/1.1 200 OK\r\nX-Api-Served: 2\r\nX-Api-Lowest: 1\r\n\r\n"

    assert list(response_disagreements(result(api, written(api, "2"), "2", head)))
    assert not list(response_disagreements(result(api, written(api, "2"), "2", good)))


async def test_a_path_that_a_server_does_not_know_as_unversioned_is_a_disagreement() -> None:
    api, reader = APIS["header"], PYTHON_READERS[0]
    for path, number in (("/health", 0), ("/health/deep", 0), ("/Health", 1), ("/orders", 1)):
        raw = request(path, host=api.host)
        found = list(disagreements(result(api, raw, ""), reader.name, await view_of(reader, raw)))
        assert len(found) == number, path


async def test_an_operation_outside_its_versions_is_a_disagreement() -> None:
    api, reader = APIS["several"], PYTHON_READERS[0]
    override = "X-HTTP-Method-Override: delete"
    for method, lines, version, number in (
        ("DELETE", (), "3", 1),
        ("POST", (override,), "3", 1),
        ("POST", (), "3", 0),
        ("DELETE", (), "5", 0),
    ):
        raw = written(api, version).replace(b"/api/%b/anything" % version.encode(), b"/api/x/jobs/1.json")
        raw = raw.replace(b"GET", method.encode()).replace(
            b"\r\n\r\n", f"\r\n{''.join(lines)}\r\n\r\n".encode()
        )
        found = disagreements(result(api, raw, version), reader.name, await view_of(reader, raw))
        assert sum(each.location.startswith("Operation") for each in found) == number, (
            method,
            lines,
            version,
        )


# --- the cases ---------------------------------------------------------------------------------------------


def test_a_seed_always_gives_the_same_cases() -> None:
    assert list(cases(1, 200)) == list(cases(1, 200))
    assert list(cases(1, 400))[:200] == list(cases(1, 200))
    assert list(cases(2, 200)) != list(cases(1, 200))


def test_every_mutation_is_applied() -> None:
    known = (HEADER_MUTATIONS, REQUEST_MUTATIONS, SIGNATURES, QUERY_MUTATIONS, PATH_MUTATIONS)
    names = {name for mutations in (*known, MEDIA_TYPE_MUTATIONS) for name in mutations}

    assert {name for case in cases(1, 2000) for name in case.mutations} == names
