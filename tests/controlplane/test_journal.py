"""What the log says of an offer: the backends that differ from it are called so."""

from __future__ import annotations

import logging

import pytest

from gateway.controlplane.journal import note_changes
from gateway.core.backend import Backend
from gateway.core.dialect import Advert
from gateway.core.fleet import Answered, Contradicted, Unreached
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


def test_what_requests_met_is_one_line_each_that_says_what_to_check(caplog: pytest.LogCaptureFixture) -> None:
    cell = cell_of(service(Backend("api-1", "127.0.0.1", 1)))
    advert = Advert(VersionSet.between(Version(1, 1), Version(1, 58)))
    cell.observe("baremetal", "api-1", Answered(advert, 1.0))
    cell.subscribe(note_changes)

    with caplog.at_level(logging.INFO, "skewgate.prober"):
        for at in (2.0, 3.0):
            cell.observe("baremetal", "api-1", Unreached(at))
            cell.observe("baremetal", "api-1", Contradicted(Version(1, 31), at))
        cell.observe("baremetal", "api-1", Contradicted(Version(1, 40), 4.0))
        cell.observe("baremetal", "api-1", Answered(advert, 5.0))

    refused, contradicted, again = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "skewgate.prober"
    ]
    assert refused[0] == "WARNING"
    assert refused[1].startswith("baremetal/api-1: refused a connection, tried last until a probe answers")
    assert refused[1].endswith("check http://127.0.0.1:1")
    assert contradicted[0] == again[0] == "ERROR"
    assert contradicted[1].startswith("baremetal/api-1: was asked for 1.31 and said that it served another")
    assert again[1].startswith("baremetal/api-1: was asked for 1.40 and")
