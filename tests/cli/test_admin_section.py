"""The admin listener is found in a configuration without reading the rest (R3-V6): either as the whole file
says it, or not at all."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.cli.admin_section import DEFAULT, AdminSection, read_admin_section
from gateway.settings import read_file

TOKEN = "open-sesame-sesame"
ENVIRON = {"TOKEN": TOKEN, "PORT": "9907", "EMPTY": ""}
SERVICES = (
    "services: {a: {dialect: ironic, backends: [{name: b, url: 'http://127.0.0.1:9', versions: 1.1-1.5}]}}"
)

PLAIN = {
    "no admin": "",
    "flow": "admin: {listen: '127.0.0.1:9901'}\n",
    "block": "admin:\n  # where operators go\n  listen: 127.0.0.1:9901   # only here\n",
    "IPv6": "admin: {listen: '[::1]:9901'}\n",
    "a name": "admin: {listen: LOCALHOST:9901}\n",
    "variables": 'admin: {listen: "127.0.0.1:${PORT}", token: "${TOKEN}"}\n',
    "defaults": "admin:\n  listen: 127.0.0.1:${NONE:-9903}\n  token: ${EMPTY:-open-sesame-sesame}\n",
    "a file": "admin:\n  listen: 0.0.0.0:9901\n  token: ${FILE:token}\n",
    "TLS": "admin:\n  tls:\n    certificates:\n      - {certificate: a.crt, key: a.key}\n",
    "all keys": "admin:\n  listen: 0.0.0.0:9901\n  hosts: [a.example]\n  token: "
    + TOKEN
    + "\n  metrics_listen: 0.0.0.0:9902\n",
    "in the middle": "watch: false\n\nadmin: {listen: 127.0.0.1:9901}\nworkers: 2\n",
    "apostrophes in comments": "# it's the gateway's\nadmin: {listen: 127.0.0.1:9901}  # don't\n",
    "CRLF": "admin:\r\n  listen: 127.0.0.1:9901\r\n",
}
NOT_PLAIN = {
    "a text that looks like a key": 'state: "a\nadmin: {listen: 127.0.0.1:1}"\n',
    "a list that looks like a key": "trusted_proxies: [\nadmin: ]\n",
    "a list below that looks like a key": "trusted_proxies:\n  - '\nadmin: '\n",
    "twice": "admin: {listen: 127.0.0.1:1}\nadmin: {listen: 127.0.0.1:2}\n",
    "a key of its own": "admin: {listen: 127.0.0.1:1, port: 2}\n",
    "a variable that is not set": 'admin: {token: "${NONE}"}\n',
    "half a variable": "admin: {token: 'a${'}\n",
    "no such file": 'admin: {token: "${FILE:/nowhere}"}\n',
    "an anchor": "admin: &a {listen: 127.0.0.1:1}\n",
    "a tag": "admin: !!map {listen: 127.0.0.1:1}\n",
    "a key in quotation marks": '"admin": {listen: 127.0.0.1:1}\n',
    "one mapping": "{admin: {listen: 127.0.0.1:1}}\n",
    "indented": " admin: {listen: 127.0.0.1:1}\n",
    "two documents": "admin: {listen: 127.0.0.1:1}\n---\n",
    "empty": "admin:\n",
    "not an address": "admin: {listen: 127.0.0.1}\n",
    "a tab": "admin:\t{listen: 127.0.0.1:1}\n",
    "a line end of YAML's": "watch: false # \u2028admin: {listen: 127.0.0.1:1}\n",
    "a brace": "admin: {listen: 127.0.0.1:1\n",
    "too deep": "admin: {hosts: [[[[[[1]]]]]]}\n",
    "a token with a blank": "admin: {token: 'a b'}\n",
}


def by_the_whole_file(path: Path) -> AdminSection:
    admin = read_file(path, environ=ENVIRON, check_files=False).require().admin
    return AdminSection(
        *admin.listen,
        None if admin.token is None else admin.token.reveal(),
        None if admin.tls is None else tuple(each.certificate for each in admin.tls.certificates),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text(TOKEN + "\n")
    return tmp_path


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_R3_V6_what_is_plain_is_read_as_in_the_whole_file(folder: Path, text: str) -> None:
    path = folder / "skewgate.yaml"
    path.write_bytes(f"listen: 127.0.0.1:0\n{text}{SERVICES}\n".encode())

    assert read_admin_section(path, ENVIRON) == by_the_whole_file(path)


@pytest.mark.parametrize("text", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_R3_V6_what_is_not_plain_is_left_to_the_whole_file(folder: Path, text: str) -> None:
    path = folder / "skewgate.yaml"
    path.write_bytes(f"{text}{SERVICES}\n".encode())

    assert read_admin_section(path, ENVIRON) is None


def test_R3_V6_included_files_have_no_part_in_it(folder: Path) -> None:
    path = folder / "skewgate.yaml"
    path.write_text("include: conf.d/*.yaml\nadmin: {listen: 127.0.0.1:9901}\n")

    assert read_admin_section(path, {}) == AdminSection("127.0.0.1", 9901)


def test_R3_V6_a_pipe_or_no_file_at_all_is_left_to_the_whole_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name in ("pipe", "nothing", "."):
        assert read_admin_section(folder / name, {}) is None


def test_the_usual_address_is_the_one_of_the_model(folder: Path) -> None:
    path = folder / "skewgate.yaml"
    path.write_text(f"listen: 127.0.0.1:0\n{SERVICES}\n")

    assert by_the_whole_file(path)[:2] == DEFAULT


@pytest.mark.parametrize("path", sorted(Path("config").rglob("*.yaml")), ids=str)
def test_the_examples_are_plain(path: Path) -> None:
    """The other files of the folder are included ones."""
    environ = {"SKEWGATE_ADMIN_TOKEN": TOKEN}

    assert read_admin_section(path, environ) is not None
