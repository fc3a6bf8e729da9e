"""`dns`, `srv` and `file` in the configuration: what they become, and what is reported of them."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path

import pytest

from gateway.core.fleet.backend import BackendTls
from gateway.core.fleet.source import Source, SourceKind
from gateway.settings.yaml.problem import Severity
from tests.settings.texts import load_text

START = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: plain
    backends:
"""


def only_source(text: str) -> Source:
    service = load_text(START + text).require().services[0]
    assert service.backends == ()
    assert service.undiscovered
    (source,) = service.sources
    return source


def found(text: str) -> list[tuple[str, int, int]]:
    return [(each.code, each.line, each.column) for each in load_text(START + text).problems]


def test_a_name_with_all_that_its_backends_have_in_common() -> None:
    source = only_source(
        "      - {dns: 'https://API.svc:6385/base', weight: 3, backup: true, leave_grace: 30s, "
        "versions: '1.1'}\n"
    )
    assert (source.kind, source.text, source.key) == (
        SourceKind.DNS,
        "https://API.svc:6385/base",
        "dns https://API.svc:6385/base",
    )
    assert (source.name, source.port, source.path, source.leave_grace) == ("api.svc", 6385, "/base", 30.0)
    assert source.tls == BackendTls("api.svc")
    template = source.template
    assert (template.weight, template.backup, template.declared is not None) == (3, True, True)


def test_the_identity_of_srv_backends_is_the_name_that_was_asked_for() -> None:
    source = only_source("      - {srv: 'https://_api._tcp.fleet.test'}\n")
    assert (source.name, source.tls) == ("_api._tcp.fleet.test", BackendTls("fleet.test"))
    assert source.leave_grace == 300.0


def test_a_file_and_its_tls(tmp_path: Path) -> None:
    path = tmp_path / "backends.json"
    path.write_text(json.dumps([{"targets": ["a:1"]}]))
    assert only_source(f"      - {{file: '{path}'}}\n").tls is None
    source = only_source(f"      - {{file: '{path}', tls: {{server_name: all.test}}}}\n")
    assert (source.text, source.tls) == (str(path), BackendTls("all.test"))


def test_sources_and_backends_stand_beside_each_other() -> None:
    text = "      - {url: 'http://a:1'}\n      - {dns: 'http://b:1'}\n      - {srv: 'http://_x._tcp.c'}\n"
    service = load_text(START + text).require().services[0]
    assert [backend.name for backend in service.backends] == ["a:1"]
    assert [source.name for source in service.sources] == ["b", "_x._tcp.c"]


@pytest.mark.parametrize(
    "text, problems",
    [
        ("      - {weight: 2}\n", [("missing-key", 6, 9)]),
        ("      - {dnss: 'http://a:1'}\n", [("unknown-key", 6, 10)]),
        ("      - {dns: 'http://10.0.0.1:1'}\n", [("bad-value", 6, 15)]),
        ("      - {dns: 'unix:/run/x.sock'}\n", [("bad-value", 6, 15)]),
        ("      - {dns: 'http://_x._tcp.a:1'}\n", [("bad-value", 6, 15)]),
        ("      - {srv: 'http://a'}\n", [("bad-value", 6, 15)]),
        ("      - {srv: _api._tcp.a}\n", [("bad-value", 6, 15)]),
        ("      - {srv: 'http://_x._tcp.a:80'}\n", [("bad-value", 6, 15)]),
        ("      - {url: 'http://a:1', dns: 'http://a:1'}\n", [("contradiction", 6, 29)]),
        ("      - {dns: 'http://a:1', name: x}\n", [("contradiction", 6, 29)]),
        ("      - {url: 'http://a:1', leave_grace: 1s}\n", [("contradiction", 6, 29)]),
        ("      - {url: 'http://a:1', networks: [10.0.0.0/8]}\n", [("contradiction", 6, 29)]),
        ("      - {dns: 'http://a:1', networks: [10.0.0.300]}\n", [("bad-value", 6, 40)]),
        ("      - {dns: 'http://a:1', leave_grace: never}\n", [("bad-value", 6, 42)]),
        ("      - {dns: 'http://a:1', tls: {server_name: x}}\n", [("contradiction", 6, 29)]),
        ("      - {dns: 'http://a:1'}\n      - {dns: 'http://a:1'}\n", [("duplicate-backend", 7, 15)]),
        ("      - {file: '/nowhere/x.json'}\n", [("bad-targets", 6, 16)]),
        ("      - {file: /dev/null}\n", [("bad-targets", 6, 16)]),
    ],
)
def test_what_is_reported(text: str, problems: list[tuple[str, int, int]]) -> None:
    assert found(text) == problems


def test_a_file_that_cannot_be_used_is_a_warning_with_its_reason(tmp_path: Path) -> None:
    """It may be written later, and until then the gateway goes by what it knows."""
    path = tmp_path / "backends.json"
    path.write_text('[\n{"targets": ["a:1",]}]')
    loaded = load_text(START + f"      - {{file: '{path}'}}\n")
    (problem,) = loaded.problems
    assert problem.severity is Severity.WARNING
    assert "line 2, column" in problem.message
    assert loaded.require().services[0].sources


def test_a_relative_file_is_named_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = load_text(START + "      - {file: x.json}\n").problems

    assert f"reads it at {tmp_path}/x.json; until then" in str(problem.hint)


def test_a_number_of_backends_may_be_more_than_are_in_the_file() -> None:
    text = "      - {dns: 'http://a:1'}\n    offer: {policy: at_least, at_least: 3}\n"
    assert found(text) == []


def test_the_digest_of_a_service_follows_what_is_discovered() -> None:
    service = load_text(START + "      - {dns: 'http://a:1'}\n").require().services[0]
    one = service.with_backends((), undiscovered=False)
    assert not one.is_written_as(service)
    assert one.is_written_as(one.with_backends((), undiscovered=False))


def test_R3_T9_the_networks_of_a_source() -> None:
    source = only_source("      - {dns: 'http://a:1', networks: [10.0.0.0/8, 'fd00::/8']}\n")

    assert source.networks == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert only_source("      - {dns: 'http://a:1'}\n").networks == ()


@pytest.mark.parametrize(
    "place, headers, warned",
    [
        ("dns: 'http://a:1'", "{X-Auth-Token: abc}", True),
        ("dns: 'http://a:1'", "{Authorization: Basic abc}", True),
        ("srv: 'http://_x._tcp.a'", "{X-Own: '${VALUE:-abc}'}", True),
        ("dns: 'http://a:1'", "{X-Own: abc, Accept: text/plain}", False),
        ("dns: 'https://a:1'", "{X-Auth-Token: abc}", False),
        ("url: 'http://a:1'", "{X-Auth-Token: abc}", False),
        ("file: 'plain.json'", "{X-Auth-Token: abc}", True),
        ("file: 'https.json'", "{X-Auth-Token: abc}", False),
    ],
)
def test_R3_T9_secrets_that_probes_send_in_clear_to_discovered_backends_are_warned_of(
    tmp_path: Path, place: str, headers: str, warned: bool
) -> None:
    (tmp_path / "plain.json").write_text('[{"targets": ["https://a:1", "b:1"]}]')
    (tmp_path / "https.json").write_text('[{"targets": ["https://a:1"]}]')
    place = place.replace("'plain", f"'{tmp_path}/plain").replace("'https.", f"'{tmp_path}/https.")

    problems = load_text(START + f"      - {{{place}}}\n    probe: {{headers: {headers}}}\n").problems

    assert [(each.code, each.line, each.severity) for each in problems] == (
        [("sent-in-clear", 7, Severity.WARNING)] if warned else []
    )
    assert all("abc" not in each.message for each in problems)
