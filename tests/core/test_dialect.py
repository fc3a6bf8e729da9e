"""The defaults of the contract, which a dialect need not write; and values that no code may ignore."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.decision.local_responses import error_response, vary_header
from gateway.core.decision.negotiation import negotiate
from gateway.core.dialect import (
    ConfigurationRules,
    DefaultVersion,
    GatewayError,
    Links,
    RequestedKind,
    RequestedVersion,
)
from gateway.core.fleet.offer_state import policy_set
from gateway.core.http.message import as_mapping
from gateway.core.versions.ranges import VersionSet
from tests.core.builders import MINIMUM, RESOURCE, Toy, fleet_of, service, snapshot, upto, v

OFFER = VersionSet.only(v("1.1"))


def test_the_defaults_of_the_contract() -> None:
    toy = Toy.configured(Toy.Options())

    assert isinstance(toy, Toy)
    assert not toy.target_has_version
    assert toy.write_target(RESOURCE, "/v1/x", v("1.1")) == "/v1/x"
    assert not toy.vary_separately
    assert toy.operation_path("/v1/x") == "/v1/x"
    assert toy.without_version(as_mapping([("x-version", "1.1")])) == ()
    assert toy.configuration_rules == ConfigurationRules()
    assert toy.read_refusal(406, b"{}") is None
    assert toy.rewrite_document(RESOURCE, b"{}", OFFER, Links("http://a:1", "b", "http://b")) is None
    assert (dict(toy.releases), toy.legacy_versions) == ({}, VersionSet())


def test_an_error_has_vary_and_has_retry_after_only_where_it_is_known() -> None:
    view = snapshot({"a": upto(5)}).views["toy"]

    assert error_response(view, GatewayError(502, "x")).headers == (("Vary", "X-Version"),)
    assert error_response(view, GatewayError(503, "x", retry_after=7)).headers == (
        ("Retry-After", "7"),
        ("Vary", "X-Version"),
    )


def test_vary_is_one_line_or_one_for_each_name() -> None:
    assert vary_header(("A", "B"), separately=False) == (("Vary", "A, B"),)
    assert vary_header(("A", "B"), separately=True) == (("Vary", "A"), ("Vary", "B"))
    assert vary_header((), separately=False) == ()


def test_a_service_may_have_a_default_version_of_its_own() -> None:
    constant = DefaultVersion(MINIMUM.kind, v("1.1"))

    assert service("a").effective_default_version is MINIMUM
    assert service("a", default_version=constant).effective_default_version is constant
    assert dict(service("a").releases) == {}


STRANGE: Any = "strange"


@pytest.mark.parametrize(
    "requested, default_version",
    [(RequestedVersion(STRANGE), MINIMUM), (RequestedVersion(RequestedKind.NONE), DefaultVersion(STRANGE))],
)
def test_an_unknown_kind_of_requested_version_is_a_bug_and_loud(
    requested: RequestedVersion, default_version: DefaultVersion
) -> None:
    with pytest.raises(AssertionError):
        negotiate(requested, OFFER, default_version)


def test_so_is_an_unknown_fact_command_or_policy() -> None:
    fleet = fleet_of([service("a")])
    with pytest.raises(AssertionError):
        fleet.observe("toy", "a", STRANGE)
    with pytest.raises(AssertionError):
        fleet.apply("toy", STRANGE)
    with pytest.raises((AssertionError, TypeError)):  # compiled, a service does not even take it
        policy_set(service("a", policy=STRANGE), fleet.member_sets["toy"])
