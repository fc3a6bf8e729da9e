"""Writes docs/releases.md, the releases that a ceiling can name, from the dialects.

python -m tests.docs.releases_page > docs/releases.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from gateway.core.dialect import Dialect
from gateway.dialects import discover
from gateway.dialects.openstack.services import PRESETS
from tests.docs.pages import table

_OPENING: Final = """\
# Releases

<!-- Written by `python -m tests.docs.releases_page`; a test compares. Change the dialects, not it. -->

Names that `offer.ceiling: {release: NAME}` and `skewgate pin SERVICE --release NAME` take, with the highest
version that the release serves. `releases` of a service adds names, or replaces these.
Ironic before 10.0 cannot be pinned by its own configuration; the gateway can hold it below its maximum.
"""


def releases_text() -> str:
    """The page as it should be."""
    return _OPENING + "".join(
        f"\n## {title}\n\n{_table(dialect)}" for title, dialect in _with_releases().items()
    )


def _with_releases() -> Mapping[str, Dialect]:
    """The dialects that know releases, by their headings."""
    found: dict[str, Dialect] = {}
    for name, kind in discover().items():
        if name == "openstack":
            types = sorted(PRESETS)
            found |= {
                f"openstack, {each}": kind.configured(kind.Options(service_type=each)) for each in types
            }
        else:
            found[name] = kind.configured(kind.Options())
    return {title: dialect for title, dialect in found.items() if dialect.releases}


def _table(dialect: Dialect) -> str:
    """A row for each maximum."""
    names: dict[str, list[str]] = {}
    for release, highest in dialect.releases.items():
        names.setdefault(dialect.scheme.format(highest), []).append(release)
    return table(
        ("maximum", "releases"), ((highest, ", ".join(releases)) for highest, releases in names.items())
    )


if __name__ == "__main__":
    sys.stdout.write(releases_text())
