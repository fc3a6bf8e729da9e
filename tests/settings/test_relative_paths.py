"""A relative path, in whatever key, begins in the folder of the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from gateway.settings import Loaded, Settings, load, read_file

EVERYWHERE: Final = """\
listen:
  - address: unix:http.sock
  - address: 127.0.0.1:8443
    tls: {certificates: [{certificate: tls/a.crt, key: ./tls/a.key}], client_ca: ../ca.crt}
state: ${STATE}
access_log: {path: log/access.log}
services:
  api:
    dialect: ironic
    backends:
      - {url: "https://10.0.0.1", tls: {ca: tls/ca.crt, certificate: tls/b.crt, key: tls/b.key}}
      - {file: backends.json}
"""
SHORT: Final = (
    'listen: 127.0.0.1:0\nservices: {api: {dialect: ironic, backends: [{url: "http://127.0.0.1:1"}]}}\n'
)


def paths(settings: Settings) -> list[str]:
    """Every path, in the order of the file."""
    unix, tls = settings.listen
    assert tls.tls is not None
    (pair,) = tls.tls.certificates
    (service,) = settings.services
    (backend,), (source,) = service.backends, service.sources
    assert backend.tls is not None
    return [
        *(unix.path, pair.certificate, pair.key, str(tls.tls.client_ca)),
        *(str(settings.state), settings.access_log.path),
        *(str(backend.tls.ca), str(backend.tls.certificate), str(backend.tls.key), source.text),
    ]


def loaded(text: str, filename: str, **environ: str) -> Loaded:
    return load(text, filename=filename, environ=environ, check_files=False)


def test_in_every_key() -> None:
    found = paths(loaded(EVERYWHERE, "/etc/gw/gw.yaml", STATE="state.json").require())

    below = ["http.sock", "tls/a.crt", "tls/a.key", "../ca.crt", "state.json", "log/access.log"]
    below += ["tls/ca.crt", "tls/b.crt", "tls/b.key", "backends.json"]
    assert found == [f"/etc/gw/{path}" for path in below]


def test_a_configuration_in_the_working_folder_changes_no_path() -> None:
    found = paths(loaded(EVERYWHERE, "gw.yaml", STATE="state.json").require())

    assert found[:2] == ["http.sock", "tls/a.crt"]
    assert found[4:6] == ["state.json", "log/access.log"]


@pytest.mark.parametrize(
    "more, key, value",
    [
        ("state: /var/lib/state.json", "state", "/var/lib/state.json"),
        ("state: s/${NAME}.json", "state", "/etc/gw/s/a.json"),
        ("access_log: {path: /var/log/a.log}", "access_log", "/var/log/a.log"),
        ("access_log: {path: '-'}", "access_log", "-"),
        ("access_log: {path: ./-}", "access_log", "/etc/gw/-"),
        ("", "access_log", "-"),
    ],
)
def test_absolute_paths_and_the_standard_output_stay(more: str, key: str, value: str) -> None:
    settings = loaded(SHORT + more, "/etc/gw/gw.yaml", NAME="a").require()

    assert {"state": settings.state, "access_log": settings.access_log.path}[key] == value


@pytest.mark.parametrize("more", ["state: .", "state: a/..", "state: ''", "access_log: {path: ''}"])
def test_what_is_no_path_stays_none(more: str) -> None:
    (problem,) = loaded(SHORT + more, "/etc/gw/gw.yaml").errors

    assert problem.line == 3


def test_a_socket_path_counts_with_its_folder() -> None:
    text = SHORT.replace("127.0.0.1:0", "unix:http.sock")

    (problem,) = loaded(text, f"/{'a' * 100}/gw.yaml").errors
    assert "at most 107 bytes" in problem.message


def test_an_included_file_goes_by_the_folder_of_the_main_file(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "gw.yaml").write_text("listen: 127.0.0.1:0\ninclude: conf.d/*.yaml\n", encoding="utf-8")
    (tmp_path / "conf.d" / "api.yaml").write_text(
        "services: {api: {dialect: ironic, backends: [{file: api.json}]}}\n", encoding="utf-8"
    )
    (tmp_path / "api.json").write_text('[{"targets": ["10.0.0.1:80"]}]', encoding="utf-8")

    found = read_file(tmp_path / "gw.yaml", environ={})

    assert found.problems == ()
    ((source,),) = [service.sources for service in found.require().services]
    assert source.text == str(tmp_path / "api.json")


def test_what_comes_from_a_stream_goes_by_the_working_folder() -> None:
    text = (SHORT + "state: state.json\n").encode()
    reading, writing = os.pipe()
    try:
        os.write(writing, text)
        os.close(writing)
        from_pipe = read_file(f"/dev/fd/{reading}", environ={}, check_files=False)
    finally:
        os.close(reading)

    assert from_pipe.require().state == "state.json"
    assert load(text, filename="<stdin>", environ={}).require().state == "state.json"
