"""What a dialect need not write: the defaults of the contract. And what must never be passed over."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.decision import failed, vary_header
from gateway.core.dialect import Ask, AskKind, Bounds, Failure, Links, Silence
from gateway.core.fleet import Fleet
from gateway.core.memory import policy_set
from gateway.core.message import as_mapping
from gateway.core.negotiation import settle
from gateway.core.ranges import VersionSet
from tests.core.stage import MINIMUM, RESOURCE, Toy, service, snapshot, upto, v

OFFER = Bounds(VersionSet.only(v("1.1")))


def test_a_dialect_without_options_bodies_and_targets_of_its_own() -> None:
    toy = Toy.configured(Toy.Options())

    assert isinstance(toy, Toy)
    assert toy.write_target(RESOURCE, "/x?q=1", v("1.1")) == "/x?q=1"
    assert toy.plain_path("/v1/x") == "/v1/x"
    assert toy.without_version(as_mapping([("x-version", "1.1")])) == ()
    assert (toy.can_be_asked, toy.silence_option) == (True, ())
    assert toy.read_refusal(406, as_mapping([]), b"{}") is None
    assert toy.rewrite_document(RESOURCE, b"{}", OFFER, Links("http://a:1", "b", "http://b")) is None
    assert (toy.rewrites_target, dict(toy.releases), toy.silent_serves) == (False, {}, VersionSet())


def test_a_failure_bears_vary_and_says_when_to_come_back_only_where_it_knows() -> None:
    view = snapshot({"a": upto(5)}).views["toy"]

    assert failed(view, Failure(502, "Bad Gateway", "x")).headers == (("Vary", "X-Version"),)
    assert failed(view, Failure(503, "Unavailable", "x", retry_after=7)).headers == (
        ("Retry-After", "7"),
        ("Vary", "X-Version"),
    )


def test_vary_is_one_line_or_one_for_each_name() -> None:
    assert vary_header(("A", "B"), apart=False) == (("Vary", "A, B"),)
    assert vary_header(("A", "B"), apart=True) == (("Vary", "A"), ("Vary", "B"))
    assert vary_header((), apart=False) == ()


def test_a_service_may_say_itself_what_silence_means() -> None:
    constant = Silence(MINIMUM.kind, v("1.1"))

    assert service("a").silence_rule is MINIMUM
    assert service("a", silence=constant).silence_rule is constant
    assert dict(service("a").releases) == {}


STRANGE: Any = "strange"


@pytest.mark.parametrize("ask, silence", [(Ask(STRANGE), MINIMUM), (Ask(AskKind.SILENT), Silence(STRANGE))])
def test_a_kind_of_ask_that_nobody_has_thought_of_is_our_bug_and_loud(ask: Ask, silence: Silence) -> None:
    with pytest.raises(AssertionError):
        settle(ask, OFFER, silence)


def test_so_is_such_a_fact_an_order_or_a_policy() -> None:
    fleet = Fleet.of([service("a")])
    with pytest.raises(AssertionError):
        fleet.observe("toy", "a", STRANGE)
    with pytest.raises(AssertionError):
        fleet.obey("toy", STRANGE)
    with pytest.raises(AssertionError):
        policy_set(service("a", policy=STRANGE), fleet.pools["toy"])
