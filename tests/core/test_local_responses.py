"""What the gateway itself answers after routing: errors and maintenance, in the shape of every dialect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway.core.decision.decision import Answer, AnswerCached, Forward, Refuse, decide
from gateway.core.decision.explanation import explain
from gateway.core.decision.local_responses import error_response, type_of_text
from gateway.core.dialect import GatewayError
from gateway.core.fleet.admission import Maintenance
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from tests.core.builders import snapshot, upto, with_attributes
from tests.dialects.dialect_samples import DialectSample, dialect_samples

SAMPLES = {sample.label: sample for sample in dialect_samples()}


def of_each_dialect() -> Iterator[DialectSample]:
    seen = set()
    for sample in SAMPLES.values():
        if sample.dialect.name not in seen:
            seen.add(sample.dialect.name)
            yield sample


def in_maintenance(at: Snapshot, maintenance: Maintenance | None, **more: object) -> Snapshot:
    services = [replace(view.service, maintenance=maintenance, **more) for view in at.views.values()]  # type: ignore[arg-type]
    return Snapshot.configured(services, now=0.0, after=at)


TOY = snapshot({"a": upto(5)})


@pytest.mark.parametrize("target", ["/things", "/", "/nowhere/at/all"])
@pytest.mark.parametrize(
    "version", [(), (("x-version", "3"),), (("x-version", "99"),), (("x-version", "x"),)]
)
def test_in_maintenance_everything_is_answered_alike(
    target: str, version: tuple[tuple[str, str], ...]
) -> None:
    at = in_maintenance(TOY, Maintenance(503, "Soon"))
    decision = decide(at, RequestHead("GET", target, "", version), "", {}, 0, {})

    assert isinstance(decision, Refuse | Answer)
    assert (decision.response.status, decision.response.body) == (503, b"Soon")
    assert isinstance(decide(in_maintenance(at, None), RequestHead("GET", "/things"), "", {}, 0, {}), Forward)


def test_no_cached_document_is_answered_in_maintenance() -> None:
    class Everything:
        def __contains__(self, key: object) -> bool:
            return True

    at = in_maintenance(TOY, Maintenance())
    for target in ("/", "/things"):
        decision = decide(at, RequestHead("GET", target), "", {}, 0, {}, cached_documents=Everything())
        assert not isinstance(decision, AnswerCached)


def test_explain_says_so() -> None:
    explanation = with_attributes(explain(in_maintenance(TOY, Maintenance()), RequestHead("GET", "/things")))

    assert "in maintenance" in explanation.because
    assert explanation.status == 503
    assert [left_out.reason for left_out in explanation.left_out] == ["not_asked"]


@pytest.mark.parametrize("status", [403, 429, 503])
@pytest.mark.parametrize("sample", list(of_each_dialect()), ids=lambda sample: sample.dialect.name)
def test_every_dialect_has_a_shape_for_it(sample: DialectSample, status: int) -> None:
    service = Service("api", sample.dialect, ())
    view = Snapshot.configured([service], now=0.0).views["api"]
    response = error_response(view, GatewayError(status, "One fixed sentence.", retry_after=7))

    assert response.status == status
    assert b"One fixed sentence." in response.body
    names = [name.lower() for name, _ in response.headers]
    assert ("retry-after" in names) == sample.dialect.retry_after
    assert "content-type" in names


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[1]", "application/json"),
        (' {"a": 1} ', "application/json"),
        ("<html>", "text/html; charset=utf-8"),
        ("12", "text/plain; charset=utf-8"),
        ("{not json}", "text/plain; charset=utf-8"),
    ],
)
def test_the_type_of_a_body(text: str, expected: str) -> None:
    assert type_of_text(text) == expected
