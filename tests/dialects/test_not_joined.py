"""A replica that has not joined the others answers 503 to everything, whatever API it is in front of."""

from __future__ import annotations

import pytest

from gateway.core.agreement.attachment import NOT_JOINED
from gateway.core.decision.decision import Answer, Refuse, decide
from gateway.core.dialect import Advertisement
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead
from gateway.core.versions.ranges import VersionSet
from tests.core.builders import service
from tests.dialects.dialect_samples import DIALECT_SAMPLES, DialectSample, targets_by_endpoint


@pytest.mark.parametrize("sample", DIALECT_SAMPLES, ids=lambda sample: sample.label)
def test_one_that_has_not_joined_answers_nothing(sample: DialectSample) -> None:
    served = Advertisement(VersionSet.only(*sample.versions))
    legacy = Advertisement(sample.dialect.legacy_versions, legacy=True)
    first = Snapshot.configured([service("a", "b", dialect=sample.dialect)], now=0.0, agreed=NOT_JOINED)
    for found in (served, legacy):
        one = first.after([("toy", name, ProbeSucceeded(found, 1.0)) for name in ("a", "b")], 1.0)
        for method, path in targets_by_endpoint(sample.dialect).values():
            decision = decide(one, RequestHead(method, path, "", ()), "api.test", {}, 0, {})
            assert isinstance(decision, Refuse | Answer), (method, path)
            assert decision.response.status == 503, (method, path)
