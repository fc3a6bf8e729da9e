"""Files of certificates and keys: each way to be wrong has its own words, and names its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.errors import CertificateError
from gateway.tls.certificate import read_authorities, read_pair, read_trusted, read_whole
from gateway.tls.server import ServerCertificates, check_pair
from gateway.tls.values import CertificateFiles, ServerTls
from tests.kit.certificates import Authority, Leaf, new_key

ROOT = Authority()
MIDDLE = Authority("Middle CA", above=ROOT)
LEAF = ROOT.server("api.example", "*.apps.example", "192.0.2.1")
OTHER = ROOT.server("api.example")


def files(folder: Path, leaf: Leaf = LEAF) -> CertificateFiles:
    certificate, key = leaf.write(folder)
    return CertificateFiles(str(certificate), str(key))


def test_a_good_pair_is_read(tmp_path: Path) -> None:
    certificate = check_pair(files(tmp_path))

    assert certificate.names == ("api.example", "*.apps.example", "192.0.2.1")
    assert certificate.key_type == "EC"
    assert certificate.subject == "CN=api.example"
    in_90_days = (datetime.now(UTC) + timedelta(days=90)).timestamp()
    assert abs(certificate.not_after - in_90_days) < 3600  # it is made once for all tests


def test_a_chain_may_have_its_root_or_not(tmp_path: Path) -> None:
    leaf = MIDDLE.server("api.example")
    with_root = Leaf(leaf.certificate, (*leaf.chain, ROOT.certificate), leaf.key)

    for each in (leaf, with_root):
        assert check_pair(files(tmp_path, each)).names == ("api.example",)


def test_a_certificate_without_names_has_its_common_name(tmp_path: Path) -> None:
    assert check_pair(files(tmp_path, ROOT.client("Old.Example"))).names == ("old.example",)


def spoiled(change: Callable[[Path, Path], object]) -> Callable[[Path], CertificateFiles]:
    def make(folder: Path) -> CertificateFiles:
        found = files(folder)
        change(Path(found.certificate), Path(found.key))
        return found

    return make


def of_leaf(make: Callable[[], Leaf]) -> Callable[[Path], CertificateFiles]:
    return lambda folder: files(folder, make())


def _der(certificate: Path, _: Path) -> None:
    certificate.write_bytes(LEAF.certificate.public_bytes(Encoding.DER))


def _der_key(_: Path, key: Path) -> None:
    key.write_bytes(LEAF.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def _exchange(certificate: Path, key: Path) -> None:
    first, second = certificate.read_bytes(), key.read_bytes()
    certificate.write_bytes(second)
    key.write_bytes(first)


def _directory(certificate: Path, _: Path) -> None:
    certificate.unlink()
    certificate.mkdir()


def _pipe(_: Path, key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


WRONG: dict[str, tuple[Callable[[Path], CertificateFiles], str, str]] = {
    "absent": (spoiled(lambda certificate, _: certificate.unlink()), "certificate", "No such file"),
    "absent key": (spoiled(lambda _, key: key.unlink()), "key", "No such file"),
    "folder": (spoiled(_directory), "certificate", "not a file"),
    "pipe": (spoiled(_pipe), "key", "not a file"),
    "empty": (
        spoiled(lambda certificate, _: certificate.write_bytes(b"")),
        "certificate",
        "no certificate in PEM",
    ),
    "empty key": (spoiled(lambda _, key: key.write_bytes(b"")), "key", "no private key in PEM"),
    "garbage": (
        spoiled(lambda certificate, _: certificate.write_bytes(bytes(range(256)))),
        "certificate",
        "no certificate in PEM",
    ),
    "der": (spoiled(_der), "certificate", "no certificate in PEM"),
    "der key": (spoiled(_der_key), "key", "no private key in PEM"),
    "exchanged": (spoiled(_exchange), "certificate", "no certificate in PEM"),
    "damaged": (
        spoiled(lambda certificate, _: certificate.write_bytes(LEAF.pem.replace(b"M", b"N", 3))),
        "certificate",
        "damaged",
    ),
    "cut": (
        spoiled(lambda certificate, _: certificate.write_bytes(LEAF.pem[:200])),
        "certificate",
        "damaged",
    ),
    "damaged key": (
        spoiled(lambda _, key: key.write_bytes(LEAF.key_pem().replace(b"M", b"N", 3))),
        "key",
        "damaged",
    ),
    "large": (
        spoiled(lambda certificate, _: certificate.write_bytes(LEAF.pem + bytes(1024 * 1024))),
        "certificate",
        "larger than 1024 KiB",
    ),
    "encrypted": (
        spoiled(lambda _, key: key.write_bytes(LEAF.key_pem(b"secret"))),
        "key",
        "the key is encrypted",
    ),
    "other key": (
        spoiled(lambda _, key: key.write_bytes(OTHER.key_pem())),
        "key",
        "does not belong to the certificate",
    ),
    "key of the CA first": (
        of_leaf(lambda: Leaf(ROOT.certificate, (LEAF.certificate,), LEAF.key)),
        "key",
        "does not belong to the certificate",
    ),
    "expired": (of_leaf(lambda: ROOT.server("a.example", days=-1)), "certificate", "expired on"),
    "not yet": (of_leaf(lambda: ROOT.server("a.example", starts=2)), "certificate", "is not valid before"),
    "foreign chain": (
        of_leaf(lambda: Leaf(LEAF.certificate, (MIDDLE.certificate,), LEAF.key)),
        "certificate",
        "wrong chain: certificate 1 of the file is not issued by certificate 2",
    ),
    "order": (
        of_leaf(
            lambda: Leaf((leaf := MIDDLE.server()).certificate, (ROOT.certificate, *leaf.chain), leaf.key)
        ),
        "certificate",
        "wrong chain: certificate 1",
    ),
    "weak": (
        of_leaf(
            lambda: ROOT.server(
                "a.example",
                key=rsa.generate_private_key(public_exponent=65537, key_size=1024),  # noqa: S505 - OpenSSL says so, too
            )
        ),
        "certificate",
        "OpenSSL does not take this pair: ee key too small",
    ),
}


@pytest.mark.parametrize("make, part, words", WRONG.values(), ids=WRONG)
def test_a_wrong_pair_is_refused_with_its_reason(
    tmp_path: Path, make: Callable[[Path], CertificateFiles], part: str, words: str
) -> None:
    pair = make(tmp_path)

    with pytest.raises(CertificateError, match=words) as refused:
        check_pair(pair)

    assert refused.value.part == part
    assert refused.value.path == getattr(pair, part)


@pytest.mark.parametrize(
    "name, words", [("x" * 300, "File name too long"), ("a\0b", "not a valid file name")]
)
def test_a_file_that_cannot_be_opened_is_refused(name: str, words: str) -> None:
    with pytest.raises(CertificateError, match=f"cannot be read: {words}"):
        read_pair(CertificateFiles(name, name))


def test_what_to_do_about_a_file_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(CertificateError) as absent:
        read_whole("tls.crt", "certificate")
    monkeypatch.setattr(os, "open", denied)  # root may read everything
    with pytest.raises(CertificateError) as forbidden:
        read_whole(str(tmp_path / "tls.crt"), "certificate")

    assert absent.value.hint == "a relative path begins in the folder of the configuration"
    assert forbidden.value.hint == "the user that runs the gateway must be able to read it"


def test_keys_of_every_usual_kind_are_taken(tmp_path: Path) -> None:
    for key in (
        new_key("RSA"),
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
    ):
        assert check_pair(files(tmp_path, ROOT.server("a.example", key=key))).key_type  # type: ignore[arg-type]


def test_authorities(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(ROOT.pem + b"# a comment\n" + MIDDLE.pem)
    assert read_authorities(str(bundle)) == ROOT.pem + MIDDLE.pem

    bundle.write_bytes(ROOT.pem + LEAF.certificate.public_bytes(Encoding.PEM))
    with pytest.raises(CertificateError, match="certificate 2 of the file is not that of a CA") as refused:
        read_authorities(str(bundle))
    assert refused.value.part == "client_ca"
    assert read_trusted(str(bundle))

    bundle.write_bytes(b"")
    with pytest.raises(CertificateError, match="no certificate in PEM"):
        read_authorities(str(bundle))


def test_a_bad_pair_keeps_the_old_one(tmp_path: Path) -> None:
    pair = files(tmp_path)
    certificates = ServerCertificates(ServerTls((pair,)))
    before, context = certificates.certificates, certificates.context

    Path(pair.key).write_bytes(OTHER.key_pem())
    assert certificates.changed()
    with pytest.raises(CertificateError):
        certificates.reload()

    assert certificates.certificates == before
    assert certificates.context is context
    assert not certificates.changed()  # it is told once
    OTHER.write(tmp_path)
    assert certificates.changed()
    certificates.reload()
    assert certificates.certificates != before
    assert certificates.context is context  # sessions are still resumed


def test_another_ca_for_clients_ends_their_sessions(tmp_path: Path) -> None:
    pair, ca = files(tmp_path), ROOT.write(tmp_path)
    certificates = ServerCertificates(ServerTls((pair,), str(ca)))
    context = certificates.context

    ca.write_bytes(Authority("Another CA").pem)
    certificates.reload()

    assert certificates.context is not context


def test_a_link_that_points_elsewhere_is_a_change(tmp_path: Path) -> None:
    """As Kubernetes replaces secrets, and certbot certificates."""
    for name, leaf in (("1", LEAF), ("2", OTHER)):
        (tmp_path / name).mkdir()
        leaf.write(tmp_path / name)
    (tmp_path / "now").symlink_to("1")
    pair = CertificateFiles(str(tmp_path / "now/tls.crt"), str(tmp_path / "now/tls.key"))
    certificates = ServerCertificates(ServerTls((pair,)))
    assert not certificates.changed()

    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").rename(tmp_path / "now")

    assert certificates.changed()
