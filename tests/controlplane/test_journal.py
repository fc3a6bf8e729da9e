"""What the log says of an offer: the backends that differ from it are called so."""

from __future__ import annotations

import logging

import pytest

from gateway.controlplane.journal import note_changes
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from tests.controlplane.fakes import cell_of, service


def test_backends_that_differ_from_the_offer_are_named(caplog: pytest.LogCaptureFixture) -> None:
    cell = cell_of(service(Backend("api-1", "127.0.0.1", 1), Backend("api-2", "127.0.0.1", 2)))
    cell.subscribe(note_changes)

    with caplog.at_level(logging.INFO, "skewgate.offer"):
        for name, highest in (("api-1", 58), ("api-2", 90)):
            versions = VersionSet.between(Version(1, 1), Version(1, highest))
            cell.observe("baremetal", name, Answered(Advert(versions), 1.0))

    lines = [record.getMessage() for record in caplog.records if record.name == "skewgate.offer"]
    assert lines == ["baremetal: offer none -> 1.1-1.58, phase mixed, differing: api-2"]
