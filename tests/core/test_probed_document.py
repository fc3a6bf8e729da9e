"""A discovery document that a probe has read: what is kept of it, and for how long."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from gateway.core.dialect import Advertisement, ProbeResponse
from gateway.core.fleet.fleet import ProbeFailed, ProbeSucceeded
from gateway.core.fleet.probed_document import MAX_SIZE, ProbedDocument, probed_document
from gateway.core.fleet.publication import publication, published
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header, as_mapping
from gateway.dialects.openstack.ironic import Ironic
from gateway.workers.channel import dumps, loads
from tests.core.builders import backend, fleet_of, legacy, service, upto

HOST = "10.0.0.5:6385"
TYPE = ("Content-Type", "application/json; charset=utf-8")


def kept(
    *headers: Header, path: str = "/v1", status: int = 200, sent: tuple[Header, ...] = (), body: bytes = b"{}"
) -> ProbedDocument | None:
    return probed_document(Ironic(), path, HOST, sent, ProbeResponse(status, as_mapping(headers), body))


def test_R3_V16_what_says_something_about_the_document_is_kept() -> None:
    document = kept(
        TYPE,
        ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ("Vary", "Accept"),
        ("X-OpenStack-Ironic-API-Version", "1.1"),
    )

    assert document is not None
    assert (document.path, document.host, document.status, document.body) == ("/v1", HOST, 200, b"{}")
    assert document.fields == (
        ("content-type", TYPE[1]),
        ("vary", "Accept"),
        ("x-openstack-ironic-api-version", "1.1"),
    )


@pytest.mark.parametrize(
    "headers, more",
    [
        ((TYPE,), {"path": "/v1/nodes"}),
        ((TYPE,), {"status": 404}),
        ((TYPE,), {"body": b"x" * (MAX_SIZE + 1)}),
        ((TYPE,), {"sent": (("X-Auth-Token", "t"),)}),
        ((), {}),
        ((TYPE, TYPE), {}),
        ((("Content-Type", "text/html"),), {}),
        ((TYPE, ("Set-Cookie", "a=b")), {}),
        ((TYPE, ("Cache-Control", "max-age=5, Private")), {}),
        ((TYPE, ("Cache-Control", "no-store")), {}),
        ((TYPE, ("Vary", "Accept, *")), {}),
    ],
)
def test_R3_V16_what_is_no_record_or_for_one_client_alone_is_not(
    headers: tuple[Header, ...], more: dict[str, object]
) -> None:
    assert kept(*headers, **more) is None  # type: ignore[arg-type]


def test_R3_V16_a_document_is_replaced_when_the_advertisement_is_another_one() -> None:
    """Some documents hold the time: each probe would change the snapshot."""
    fleet = fleet_of([service(backends=(backend("a"),))])

    def probe(advertised: Advertisement, at: float, body: bytes | None) -> bytes | None:
        nonlocal fleet
        document = None if body is None else ProbedDocument("/doc", HOST, 200, (), body)
        fleet = fleet.observe("toy", "a", ProbeSucceeded(advertised, at, document=document))
        found = fleet.member_sets["toy"].all[0].document
        return None if found is None else found.body

    assert probe(upto(5), 1.0, None) is None
    assert probe(upto(5), 2.0, b"first") == b"first"
    known = fleet.member_sets["toy"].all[0]
    assert probe(upto(5), 3.0, b"the same at another time") == b"first"
    assert fleet.member_sets["toy"].all[0] == known
    assert probe(upto(9), 0.5, b"older") == b"first"
    fleet = fleet.observe("toy", "a", ProbeFailed("silence", 4.0))
    assert probe(legacy("1.1"), 5.0, b"not believed yet") == b"first"
    assert probe(upto(9), 6.0, b"second") == b"second"
    assert probe(upto(8), 7.0, None) is None


def test_R3_V16_workers_are_told_what_probes_have_read() -> None:
    one = service(backends=(backend("a"),))
    before = Snapshot.configured([one], now=0.0)
    document = ProbedDocument("/doc", HOST, 200, (("vary", "Accept"),), b"{}")
    after = before.after([("toy", "a", ProbeSucceeded(upto(5), 1.0, document=document))], 1.0)

    told = published(published(None, publication(None, before)), loads(dumps(publication(before, after))))

    assert told.fleet.member_sets["toy"].all[0].document == document
