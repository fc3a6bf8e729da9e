"""Subjects of certificates as texts: equal ones have the same text.

`cryptography` reads and writes them. It is imported with the first one: most commands meet none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.keys.kinds import TEXT, Text, reject

if TYPE_CHECKING:
    from cryptography import x509

_ATTRIBUTE: Final = re.compile(r"(?<!\\)(?:^| *([,+])) *([A-Za-z0-9.-]+) *= *")


def subject_text(name: x509.Name) -> str:
    """Write a distinguished name (RFC 4514), with attributes of one part in order. Raises `ValueError`."""
    parts = (sorted(each.rfc4514_string() for each in part) for part in reversed(name.rdns))
    return ",".join(map("+".join, parts))


def read_subject(text: str) -> str:
    """Read a distinguished name in any of its spellings. Raises `TextRefused`."""
    from cryptography.x509 import Name, NameOID  # noqa: PLC0415 - see above

    names = {"E": NameOID.EMAIL_ADDRESS, "EMAILADDRESS": NameOID.EMAIL_ADDRESS}
    spelled = _ATTRIBUTE.sub(lambda found: f"{found[1] or ''}{found[2].upper()}=", text)
    try:
        found = subject_text(Name.from_rfc4514_string(spelled, names))
    except ValueError:
        found = ""
    return found or reject("not a distinguished name", "write it so: CN=nova,O=Example")


SUBJECT: Final = Text(read_subject, TEXT)
