"""Operations as the record of usage names them: few for many paths, and the same for one path as for many."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.fleet.service import Match, Service
from gateway.core.usage.operations import count_paths, operation_of
from gateway.dialects.custom.dialect import Custom
from tests.core.builders import service
from tests.dialects.custom_samples import PATH
from tests.kit.ironic import service as ironic_service
from tests.kit.ironic import versions

UUID: Final = "1be26c0b-03f2-4d2e-ae87-c02d7f33c123"
HEX: Final = "1BE26C0B03F24D2EAE87C02D7F33C123"


@pytest.mark.parametrize(
    "path, operation",
    [
        ("/v1/nodes", "GET /v1/nodes"),
        (f"/v1/nodes/{UUID}", "GET /v1/nodes/{id}"),
        (f"/v1/nodes/{HEX}/", "GET /v1/nodes/{id}"),
        ("/v1/nodes/42", "GET /v1/nodes/{id}"),
        ("/v1/nodes/%34%32", "GET /v1/nodes/{id}"),
        ("/v1/nodes/42a", "GET /v1/nodes/42a"),
        (f"/v1/nodes/{UUID}0", f"GET /v1/nodes/{UUID}0"),
        (f"/v1/nodes/{UUID}/states/power", "GET /v1/nodes/{id}/…"),
        (f"/v1/nodes/{UUID}/states", "GET /v1/nodes/{id}/…"),
        ("/", "GET /"),
        (f"/v1/{'x' * 5000}", f"GET /v1/{'x' * 63}…"),
    ],
)
def test_a_path_is_named_by_its_first_three_segments(path: str, operation: str) -> None:
    assert named("GET", path) == operation
    assert count(service(), "GET", [path]) == {operation: 1}


def count(of: Service, method: str, paths: Sequence[str]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for path, requests in count_paths(of, "".join(f"{path}\n" for path in paths)).items():
        counted[named(method, path, of)] += requests
    return counted


def named(method: str, path: str, of: Service | None = None) -> str:
    return operation_of(of or service(), method, path)


def test_a_template_of_the_configuration_names_all_of_its_paths() -> None:
    rule = OperationRule(("GET",), PathTemplate.read("/v1/nodes/{ident}/vifs"), versions("1.28-1.90"))
    numeric = OperationRule(("GET",), PathTemplate.read("/v1/42"), versions("1.28-1.90"))
    one = ironic_service(operations=Operations.of([rule, numeric]))
    paths = [f"/v1/nodes/{UUID}/vifs", "/v1/nodes/rack-7/vifs", "/v1/42", f"/v1/nodes/{UUID}/bios"]

    assert count(one, "GET", paths) == {
        "GET /v1/nodes/{ident}/vifs": 2,
        "GET /v1/42": 1,
        "GET /v1/nodes/{id}/…": 1,
    }
    assert named("POST", "/v1/42", one) == "POST /v1/{id}"


def test_the_place_of_the_version_is_no_segment() -> None:
    one = service(dialect=Custom.made(PATH))

    assert count(one, "GET", ["/v1.3/users/7", "/v1.2/users/8", "/users"]) == {
        "GET /users/{id}": 2,
        "GET /users": 1,
    }


def test_a_prefix_is_no_part_of_an_operation() -> None:
    for prefix in ("/api", "/7", f"/{UUID}"):
        one = service(match=Match(path=prefix))
        paths = [f"{prefix}/v1/nodes/1", f"{prefix}/v1/nodes/{UUID}", prefix]
        assert count(one, "GET", paths) == {"GET /v1/nodes/{id}": 2, "GET /": 1}


_PATHS = st.lists(
    st.lists(
        st.sampled_from(["v1", "nodes", "42", UUID, HEX, "%34", "feed", "12-34", "", "{id}", "ä", "…"]),
        max_size=5,
    ).map(lambda segments: "/" + "/".join(segments))
)


@given(_PATHS)
def test_many_paths_are_named_as_each_of_them_is(paths: list[str]) -> None:
    counted = count(service(), "GET", paths)

    assert counted == Counter(named("GET", path) for path in paths)
    assert counted.total() == len(paths)


_KINDS: Final = st.sampled_from(
    [
        "/v1/nodes/{0}",
        "/v1/nodes/{0}/states",
        "/v1/{0}/ports/{0}",
        "/v1/nodes/{1}",
        "/v1/%34/{1};a=b/{0}",
        "/v1/ä/{0}",
        "/v1/{2}/{0}",
        "/v1/{0}{2}",
        "/v1/{0}/{2}",
    ]
)
_DIGITS: Final = st.integers(0, 2**128 - 1)


@given(_KINDS, st.lists(_DIGITS, min_size=50, max_size=60), st.sampled_from([1, 2, 16, 300]), st.booleans())
def test_very_many_alike_paths_are_named_as_each_of_them_is(
    kind: str, numbers: list[int], differ: int, upper: bool
) -> None:
    """They differ in ids alone, or also in a hex digit of something else: `differ` such texts there are."""
    cased = str.upper if upper else str
    paths = [
        kind.format(cased(str(uuid.UUID(int=one))), cased(f"{one:032x}"), f"{one % differ:03x}")
        for one in numbers
    ]

    assert count(service(), "GET", paths) == Counter(named("GET", path) for path in paths)


def test_one_path_among_alike_ones_that_has_no_id_is_counted_for_itself() -> None:
    almost = f"{UUID[:8]}a{UUID[9:]}"  # a digit where a dash would be
    paths = [f"/v1/nodes/{uuid.UUID(int=number)}" for number in range(100)]

    for odd in (f"/v1/nodes/{almost}", f"/v1/nodas/{UUID}", f"/v1/nodes/{UUID[:-1]}g", "/v1/nodes/{id}"):
        for at in (0, 50, 100):
            several = [*paths[:at], odd, *paths[at:]]
            counted = Counter(named("GET", path) for path in several)
            assert count(service(), "GET", several) == counted
