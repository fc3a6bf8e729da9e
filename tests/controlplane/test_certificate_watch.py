"""Certificates of a running gateway: read again when files change and on reload; warned of before the end."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gateway.controlplane.certificate_watch import CertificateWatch
from gateway.settings.sections.listen import Listen
from gateway.settings.values import Settings
from gateway.telemetry.series.declaring import Counter
from gateway.telemetry.series.process import OfProcess
from gateway.tls.server import ServerCertificates
from gateway.tls.values import CertificateFiles, ServerTls
from tests.kit.certificates import Authority
from tests.kit.waiting import PATIENCE
from tests.telemetry.builders import NobodyCounts

ROOT = Authority()
DAY = 86_400.0


class Counted(NobodyCounts):
    def __init__(self) -> None:
        self.results: list[str] = []
        self.changed = asyncio.Event()

    def count(self, series: Counter, *key: str, service: str = "", backend: str = "") -> None:
        assert series is OfProcess.certificate_reloads
        self.results.extend(key)
        self.changed.set()


def certificates_in(folder: Path, days: float = 90) -> tuple[ServerCertificates, ServerTls]:
    certificate, key = ROOT.server(days=days).write(folder)
    tls = ServerTls((CertificateFiles(str(certificate), str(key)),))
    return ServerCertificates(tls), tls


def configured(*listen: Listen) -> Settings:
    return Settings(listen=listen, services=())


async def test_changed_files_are_read_again_by_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("gateway.controlplane.certificate_watch.INTERVAL", 0.01)
    certificates, _ = certificates_in(tmp_path)
    metrics = Counted()
    watch = CertificateWatch({"127.0.0.1:8443": certificates}, metrics)
    watch.start()
    try:
        ROOT.server(subject="renewed", days=60).write(tmp_path)
        async with asyncio.timeout(PATIENCE):
            while certificates.certificates[0].subject != "CN=renewed":
                metrics.changed.clear()
                await metrics.changed.wait()
    finally:
        await watch.close()

    assert metrics.results[-1] == "success"
    assert "the certificates of 127.0.0.1:8443 were reloaded" in caplog.text
    assert watch.expiry() == {str(tmp_path / "tls.crt"): certificates.certificates[0].not_after}


async def test_a_bad_pair_is_told_once_with_its_reason_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates, _ = certificates_in(tmp_path)
    before = certificates.certificates
    metrics = Counted()
    watch = CertificateWatch({"127.0.0.1:8443": certificates}, metrics)

    (tmp_path / "tls.key").write_bytes(ROOT.server().key_pem())
    for _ in range(3):
        await watch.check_for_changes()

    assert certificates.certificates == before
    assert metrics.results == ["failure"]
    assert caplog.text.count("the certificates of 127.0.0.1:8443 were not reloaded") == 1
    assert f"the key does not belong to the certificate ({tmp_path / 'tls.key'})" in caplog.text


async def test_a_reload_brings_other_files(tmp_path: Path) -> None:
    certificates, _ = certificates_in(tmp_path)
    (tmp_path / "new").mkdir()
    _, tls = certificates_in(tmp_path / "new", days=30)
    watch = CertificateWatch({"127.0.0.1:8443": certificates}, Counted())

    await watch.reload(configured(Listen("127.0.0.1", 8443, tls=tls), Listen("127.0.0.1", 8080)))

    assert certificates.certificates[0].path == str(tmp_path / "new" / "tls.crt")
    assert not certificates.changed()


async def test_fourteen_days_before_it_expires_a_warning_says_so_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates, tls = certificates_in(tmp_path)
    expiry = certificates.certificates[0].not_after
    clock = [expiry - 15 * DAY]
    watch = CertificateWatch({"a": certificates}, Counted(), wall=lambda: clock[0])
    wanted = configured(Listen("127.0.0.1", 8443, tls=tls))

    await watch.reload(wanted)
    assert "expires" not in caplog.text
    for days in (13.5, 13.2, 12.4):
        clock[0] = expiry - days * DAY
        await watch.reload(wanted)
    assert caplog.text.count("expires in 13 days") == 1
    assert caplog.text.count("expires in 12 days") == 1
    clock[0] = expiry + 1
    await watch.reload(wanted)
    assert "has expired: its peers refuse it" in caplog.text


async def test_of_those_that_backends_are_shown_a_warning_says_so_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates, _ = certificates_in(tmp_path)
    (listener,) = certificates.certificates
    shown = {"/etc/skewgate/client.crt": 1000.0}
    watch = CertificateWatch({"a": certificates}, Counted(), lambda: shown, wall=lambda: 1000.0 - 3.5 * DAY)
    assert watch.expiry() == {**shown, listener.path: listener.not_after}

    watch.start()
    await watch.close()

    assert caplog.text.count("the certificate /etc/skewgate/client.crt expires in 3 days") == 1
