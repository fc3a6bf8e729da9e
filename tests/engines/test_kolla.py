"""The files for kolla-ansible, beside the HAProxy that it writes.

`tests/engines/kolla` has what kolla-ansible makes of its templates. Nothing here is started but `haproxy -c`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from gateway import settings
from gateway.core.fleet.snapshot import Snapshot
from gateway.engines.haproxy.configuration import HaproxyOptions, configuration_text, map_text
from gateway.engines.table import compile_table
from tests.architecture.source import ROOT
from tests.docs.pages import page
from tests.engines.equality.haproxy import program

KOLLA: Final = ROOT / "tests/engines/kolla"
DEPLOY: Final = ROOT / "deploy/kolla"

pytestmark = pytest.mark.engines


def checked(folder: Path, *parts: str) -> str:
    """What HAProxy says about kolla's own files with these parts beside them, one `-f` for each, as kolla
    starts it. The group of the socket exists in kolla's image only."""
    main = (KOLLA / "haproxy.cfg").read_text().replace("group kolla", "group haproxy")
    texts = [main, (KOLLA / "ironic.cfg").read_text(), *parts]
    command: list[str | Path] = [program(), "-W", "-db", "-c"]
    for at, text in enumerate(texts):
        file = folder / f"{at}.cfg"
        file.write_text(text)
        command += ["-f", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return "" if done.returncode == 0 and "WARNING" not in done.stderr else done.stdout + done.stderr


def test_haproxy_accepts_the_gateway_behind_it(tmp_path: Path) -> None:
    part = (DEPLOY / "skewgate.cfg").read_text()

    assert checked(tmp_path) == ""
    assert checked(tmp_path, part) == ""
    assert checked(tmp_path, part.replace("default_backend", "default_bakend")) != ""


def engine_part(folder: Path) -> str:
    """HAProxy's part as the gateway writes it from the file for kolla, with a map where it looks for one."""
    file = DEPLOY / "engine/skewgate.yaml"
    text = file.read_text().replace("/var/lib/skewgate", str(folder))
    services = settings.load(text, filename=str(file), environ={}).require().services
    table = compile_table(Snapshot.configured(services, now=0.0))
    (folder / "skewgate.map").write_text(map_text(table))
    options = HaproxyOptions(
        map_path=str(folder / "skewgate.map"), gateway="127.0.0.1:6381", binds=("192.0.2.10:6380",)
    )
    return configuration_text(table, options)


def test_haproxy_accepts_the_engine_beside_what_kolla_writes(tmp_path: Path) -> None:
    part = engine_part(tmp_path)

    assert checked(tmp_path, part) == ""
    assert not re.search(r"^defaults|stats socket", part, re.MULTILINE)


def test_haproxy_does_not_start_without_the_map(tmp_path: Path) -> None:
    """The page says so, and what to do about it."""
    part = engine_part(tmp_path)
    (tmp_path / "skewgate.map").unlink()

    assert "skewgate.map" in checked(tmp_path, part)


def test_the_template_engine_of_kolla_leaves_the_part_alone(tmp_path: Path) -> None:
    """Ansible reads what is in `services.d` as a template."""
    assert not re.search(r"\{\{|\{%|\{#", engine_part(tmp_path))


def test_the_settings_for_kolla_name_the_folder_that_the_page_names() -> None:
    volumes = re.findall(r'- "(.*):(.*):ro"', (DEPLOY / "engine/globals.yml").read_text())

    assert volumes == [("/var/lib/skewgate/haproxy", "/var/lib/skewgate/haproxy")]
    assert volumes[0][0] in page("docs/haproxy.md")
