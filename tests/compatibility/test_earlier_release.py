"""This release beside the one before it: state files both ways, and configurations.

`earlier.tar.xz` has the sources and the configurations of the earlier one, as they were; its libraries are in
an environment of their own. An upgrade of the gateway reads what the earlier one has written, and the way
back does the opposite.
"""

from __future__ import annotations

import json
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import settings
from gateway.controlplane.state.text import format_state, parse_state
from gateway.core.agreement.record import AgreedRecord
from gateway.core.dialect import Advertisement
from gateway.core.fleet.offer_state import SavedAdvertisement
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from tests.real.environments import build, find_python

ARCHIVE = Path(__file__).parent / "earlier.tar.xz"
CONFIGURATION = """
listen: 127.0.0.1:8080
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: api-1, url: "http://10.0.0.1:6385"}
      - {name: api-2, url: "http://10.0.0.2:6385"}
  orders:
    dialect: custom
    custom: {places: [{header: API-Version}], scheme: date}
    match: {path: /orders}
    backends:
      - {name: orders-1, url: "http://10.0.0.3:80", versions: "2024-01-01, 2025-01-01"}
"""
READ = """
import json, sys
from gateway import settings
from gateway.controlplane.state.text import parse_state
services = settings.load(sys.argv[1], filename="test", environ={}).require().services
state = parse_state(sys.stdin.read(), services)
print(json.dumps([{name: [str(saved.versions), str(saved.pin), sorted(saved.drained),
                          sorted(saved.advertisements)] for name, saved in state.saved.items()},
                  list(state.dropped)]))
"""
WRITE = """
import sys
from gateway import settings
from gateway.controlplane.state.text import format_state, parse_state
from gateway.core.fleet.snapshot import Snapshot
services = settings.load(sys.argv[1], filename="test", environ={}).require().services
state = parse_state(sys.stdin.read(), services)
print(format_state(Snapshot.configured(services, now=0.0, saved=state.saved)))
"""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the earlier release."""
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def by_the_earlier(earlier: Path, program: str, text: str) -> str:
    python = build("earlier", find_python()).python
    done = subprocess.run(
        [str(python), "-P", "-c", program, CONFIGURATION],
        env={"PYTHONPATH": str(earlier), "SKEWGATE_COMPILED": "0"},
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def services() -> tuple[Service, ...]:
    return settings.load(CONFIGURATION, filename="test", environ={}).require().services


def written(configured: tuple[Service, ...]) -> str:
    """What this release writes: offers, a pin, a drain, what a backend said."""
    scheme = configured[0].dialect.scheme
    known = Advertisement(VersionSet.read("1.1-1.58", scheme))
    parsed = parse_state(format_state(Snapshot.configured(configured, now=0.0)), configured)
    saved = dict(parsed.saved)
    saved["baremetal"] = replace(
        saved["baremetal"],
        versions=VersionSet.read("1.1-1.58", scheme),
        pin=Version(1, 31),
        drained={"api-2": ""},
        advertisements={"api-1": SavedAdvertisement("http://10.0.0.1:6385", known, 1000.0)},
    )
    return format_state(Snapshot.configured(configured, now=0.0, saved=saved))


def read_here(text: str) -> list[Any]:
    state = parse_state(text, services())
    return [
        {
            name: [str(saved.versions), str(saved.pin), sorted(saved.drained), sorted(saved.advertisements)]
            for name, saved in state.saved.items()
        },
        list(state.dropped),
    ]


@pytest.mark.real
def test_after_an_upgrade_of_the_gateway_what_the_earlier_one_wrote_counts(earlier: Path) -> None:
    text = by_the_earlier(earlier, WRITE, written(services()))

    found, dropped = read_here(text)
    assert found["baremetal"][1:] == [str(Version(1, 31)), ["api-2"], ["api-1"]]
    assert found == read_here(written(services()))[0]
    assert dropped == []


@pytest.mark.real
def test_after_the_way_back_what_this_one_wrote_counts(earlier: Path) -> None:
    text = written(services())

    assert json.loads(by_the_earlier(earlier, READ, text)) == read_here(text)


@pytest.mark.real
def test_the_earlier_one_reads_what_this_one_knows_of_discovered_backends(earlier: Path) -> None:
    """It has no such backends, so the entry does not count; everything else does."""
    document = json.loads(written(services()))
    entries = document["services"]["baremetal"]["advertisements"]
    entries["10.0.0.9:6385"] = {**entries["api-1"], "source": "dns http://api:6385", "leaves_at": None}

    found, dropped = json.loads(by_the_earlier(earlier, READ, json.dumps(document)))
    assert found["baremetal"][1:] == [str(Version(1, 31)), ["api-2"], ["api-1"]]
    assert len(dropped) == 1


@pytest.mark.real
def test_the_earlier_one_reads_what_workers_hold_of_the_offers(earlier: Path) -> None:
    """A release that knows no workers has no records. All else counts."""
    scheme = services()[0].dialect.scheme
    some = VersionSet.read("1.1-1.58", scheme)
    parsed = parse_state(written(services()), services())
    snapshot = Snapshot.configured(services(), now=0.0, saved=parsed.saved)
    text = format_state(snapshot, 0.0, {"baremetal": AgreedRecord(9, "guaranteed", some, some, some, some)})
    assert "document" in json.loads(text)["services"]["baremetal"]
    assert json.loads(by_the_earlier(earlier, READ, text)) == read_here(text)


def test_every_configuration_of_the_earlier_one_is_valid(earlier: Path, tmp_path: Path) -> None:
    files = sorted((earlier / "config").rglob("*.yaml"))
    assert len(files) > 5
    for file in files:
        # The folder is the machine's own.
        text = file.read_text(encoding="utf-8").replace("/var/lib/skewgate", str(tmp_path))
        loaded = settings.load(text, filename=file.name, environ={})
        assert not [problem for problem in loaded.problems if problem.severity == "error"], loaded.render()
