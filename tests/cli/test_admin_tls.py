"""The verbs over https: whom they trust, and what they show."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.assembly import Gateway
from gateway.settings import read_file
from tests.cli.conftest import Call
from tests.kit.certificates import Authority, authority
from tests.kit.networks import free_port

TOKEN = "open-sesame-0123456789"


def write(folder: Path, *, client: str = "", token: str = "", names: tuple[str, ...] = ()) -> Path:
    certificate, key = authority().server(*names).write(folder, "admin")
    clients = f", client_ca: {authority().write(folder)}, client: {client}" if client else ""
    secret = f"  token: {token}\n" if token else ""
    file = folder / "gateway.yaml"
    file.write_text(
        f"""\
listen: 127.0.0.1:0
access_log: {{format: off}}
admin:
  listen: 127.0.0.1:{free_port()}
{secret}  tls: {{certificates: [{{certificate: {certificate}, key: {key}}}]{clients}}}
services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: old, url: "http://127.0.0.1:9", versions: 1.1-1.58}}
"""
    )
    return file


@asynccontextmanager
async def running(file: Path) -> AsyncIterator[str]:
    async with Gateway(read_file(file, environ=os.environ).require(), source=file) as gateway:
        yield gateway.admin_url


async def test_with_the_file_the_gateway_is_known_by_its_certificate(tmp_path: Path, call_main: Call) -> None:
    """Whatever names the certificate has, and whoever issued it."""
    file = write(tmp_path, token=TOKEN, names=("gateway.example.org",))
    async with running(file):
        assert (await call_main("healthcheck", "-c", str(file))).code == 0
        assert (await call_main("drain", "-c", str(file), "baremetal/old")).code == 0


async def test_another_program_does_not_get_the_token(tmp_path: Path, call_main: Call) -> None:
    file = write(tmp_path, token=TOKEN)
    async with running(file):
        authority().server().write(tmp_path, "admin")
        ended = await call_main("status", "-c", str(file))

    assert ended.code == 1
    assert "its certificate is not the one in the configuration" in ended.err


async def test_a_ca_verifies_by_the_name(tmp_path: Path, call_main: Call) -> None:
    file = write(tmp_path)
    ca, other = authority().write(tmp_path), Authority("Somebody").write(tmp_path, "other")
    async with running(file) as url:
        assert (await call_main("status", "--admin", url, "--ca", str(ca))).code == 0
        by_name = url.replace("127.0.0.1", "localhost")
        assert (await call_main("status", "--admin", by_name, "--ca", str(ca))).code == 0

        ended = await call_main("status", "--admin", url, "--ca", str(other))
        assert ended.code == 1
        assert "its certificate is not valid: unable to get local issuer certificate" in ended.err
        ended = await call_main("status", "--admin", url)
        assert "its certificate is not valid" in ended.err


async def test_a_certificate_of_an_operator(
    tmp_path: Path, call_main: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, client="required")
    certificate, key = authority().client("an operator").write(tmp_path, "operator")
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    async with running(file):
        shown = ("-c", str(file), "--cert", str(certificate), "--key", str(key))
        assert (await call_main("status", *shown)).code == 0
        assert (await call_main("status", "-c", str(file), "--cert", str(both))).code == 0
        monkeypatch.setenv("SKEWGATE_ADMIN_CERT", str(both))
        assert (await call_main("status", "-c", str(file))).code == 0
        monkeypatch.delenv("SKEWGATE_ADMIN_CERT")

        ended = await call_main("status", "-c", str(file))
        assert ended.code == 1
        assert "requires a client certificate: give --cert and --key" in ended.err
        assert "no gateway responds" not in ended.err
        stranger = Authority("others").client("a stranger").write(tmp_path, "stranger")
        ended = await call_main(
            "status", "-c", str(file), "--cert", str(stranger[0]), "--key", str(stranger[1])
        )
        assert ended.code == 1
        assert f"does not accept the certificate in {stranger[0]}: its CA must be in `admin." in ended.err


async def test_an_optional_certificate_that_is_missing(tmp_path: Path, call_main: Call) -> None:
    file = write(tmp_path, client="optional")
    async with running(file):
        ended = await call_main("status", "-c", str(file))

    assert ended.code == 1
    assert "a client certificate of an operator" in ended.err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--cert", "{absent}"], "absent cannot be used for TLS: No such file"),
        (["--ca", "{absent}"], "absent cannot be used for TLS: No such file"),
        (["--cert", "{file}"], "cannot be used for TLS"),
    ],
)
async def test_wrong_files(tmp_path: Path, call_main: Call, options: list[str], message: str) -> None:
    file = write(tmp_path)
    paths = {"absent": tmp_path / "absent", "file": file}
    ended = await call_main("status", "-c", str(file), *(each.format(**paths) for each in options))

    assert ended.code == 1
    assert message in ended.err


async def test_wrong_usage(tmp_path: Path, call_main: Call) -> None:
    file = write(tmp_path)
    assert (await call_main("status", "-c", str(file), "--key", "x")).code == 2
    (tmp_path / "admin.crt").unlink()
    ended = await call_main("status", "-c", str(file))
    assert (ended.code, "cannot be read: No such file" in ended.err) == (2, True)
