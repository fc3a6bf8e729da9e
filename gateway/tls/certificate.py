"""Certificates and keys as files: what is read from them, and what is wrong with them.

What reads certificates (`pem`, with `cryptography`) takes 20 MiB and 60 ms, so it is loaded when the first
file is read: a gateway without TLS does without it. This module makes no connection, and keeps no key.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final, cast, final

from gateway.errors import CertificateError
from gateway.tls.values import CertificateFiles

if TYPE_CHECKING:
    from types import ModuleType

CERTIFICATE: Final = "certificate"
KEY: Final = "key"
MAX_FILE: Final = 1024 * 1024
"""Bytes. A bundle of all public CAs has a quarter of that."""


@final
@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate that was read, with what others need to know of it."""

    path: str
    names: tuple[str, ...]
    """DNS names in lower case (some with `*.` at the beginning) and IP addresses."""
    key_type: str
    """`RSA`, `EC` and so on: clients take one kind or the other."""
    not_after: float
    """Seconds since the epoch."""
    subject: str
    """As in RFC 4514."""


def read_pair(files: CertificateFiles) -> Certificate:
    """The certificate of a pair. Raises `CertificateError`, whose `part` names the file that is wrong."""
    return cast(Certificate, _pem().read_pair(files))


def read_authorities(path: str, part: str = "client_ca") -> bytes:
    """The CA certificates in a file, as the PEM text for OpenSSL. Raises `CertificateError`."""
    return cast(bytes, _pem().read_authorities(path, part))


def read_trusted(path: str, part: str = "ca") -> bytes:
    """The certificates in a file that are trusted as they are, as the PEM text for OpenSSL: those of CAs, or
    of servers themselves. Raises `CertificateError`."""
    return cast(bytes, _pem().read_trusted(path, part))


def wall_clock() -> float:
    """Seconds since the epoch: certificates expire by the time of day, not by a clock of this process."""
    return time()


@lru_cache(maxsize=1024)
def describe(der: bytes) -> tuple[str, str, float]:
    """Subject (RFC 4514), SHA-256 fingerprint (hexadecimal) and end (wall-clock seconds) of a peer's
    certificate."""
    return cast("tuple[str, str, float]", _pem().describe(der))


def _pem() -> ModuleType:
    return import_module("gateway.tls.pem")


def read_whole(path: str, part: str) -> bytes:
    """A regular file of at most `MAX_FILE`. Raises `CertificateError`. A pipe would make the gateway wait."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise CertificateError(part, f"the file cannot be read: {reason}", _hint_for(path, error)) from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise CertificateError(part, "this is not a file", "name a file in PEM")
    with os.fdopen(number, "rb") as file:
        try:
            data = file.read(MAX_FILE + 1)
        except OSError as error:
            raise CertificateError(part, f"the file cannot be read: {error.strerror}") from error
    if len(data) > MAX_FILE:
        raise CertificateError(part, f"the file is larger than {MAX_FILE // 1024} KiB", "name a file in PEM")
    return data


def _hint_for(path: str, error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "the user that runs the gateway must be able to read it"
    return "" if Path(path).is_absolute() else "a relative path begins in the folder of the configuration"
