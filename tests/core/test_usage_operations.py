"""Operations as the record of usage names them: few for many paths, and the same for one path as for many."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.fleet.service import Match, Service
from gateway.core.usage.operations import count_operations, operation_of
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
    assert count_operations(service(), "GET", [path]) == {operation: 1}


def named(method: str, path: str, of: Service | None = None) -> str:
    return operation_of(of or service(), method, path)


def test_a_template_of_the_configuration_names_all_of_its_paths() -> None:
    rule = OperationRule(("GET",), PathTemplate.read("/v1/nodes/{ident}/vifs"), versions("1.28-1.90"))
    numeric = OperationRule(("GET",), PathTemplate.read("/v1/42"), versions("1.28-1.90"))
    one = ironic_service(operations=Operations.of([rule, numeric]))
    paths = [f"/v1/nodes/{UUID}/vifs", "/v1/nodes/rack-7/vifs", "/v1/42", f"/v1/nodes/{UUID}/bios"]

    assert count_operations(one, "GET", paths) == {
        "GET /v1/nodes/{ident}/vifs": 2,
        "GET /v1/42": 1,
        "GET /v1/nodes/{id}/…": 1,
    }
    assert named("POST", "/v1/42", one) == "POST /v1/{id}"


def test_the_place_of_the_version_is_no_segment() -> None:
    one = service(dialect=Custom.made(PATH))

    assert count_operations(one, "GET", ["/v1.3/users/7", "/v1.2/users/8", "/users"]) == {
        "GET /users/{id}": 2,
        "GET /users": 1,
    }


def test_a_prefix_is_no_part_of_an_operation() -> None:
    for prefix in ("/api", "/7", f"/{UUID}"):
        one = service(match=Match(path=prefix))
        paths = [f"{prefix}/v1/nodes/1", f"{prefix}/v1/nodes/{UUID}", prefix]
        assert count_operations(one, "GET", paths) == {"GET /v1/nodes/{id}": 2, "GET /": 1}


_PATHS = st.lists(
    st.lists(
        st.sampled_from(["v1", "nodes", "42", UUID, HEX, "%34", "feed", "12-34", "", "{id}", "ä", "…"]),
        max_size=5,
    ).map(lambda segments: "/" + "/".join(segments))
)


@given(_PATHS)
def test_many_paths_are_named_as_each_of_them_is(paths: list[str]) -> None:
    counted = count_operations(service(), "GET", paths)

    assert counted == Counter(named("GET", path) for path in paths)
    assert counted.total() == len(paths)
