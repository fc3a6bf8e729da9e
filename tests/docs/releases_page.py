"""Writes the tables of docs/releases.md, the releases that a ceiling can name, from the dialects.

python -m tests.docs.releases_page
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core.dialect import Dialect
from gateway.dialects import discover
from gateway.dialects.openstack.services import PRESETS
from tests.architecture.source import ROOT
from tests.docs.pages import table, with_parts

PAGE: Final = ROOT / "docs" / "releases.md"
COMMAND: Final = "python -m tests.docs.releases_page"


def page_as_it_should_be(page: str) -> str:
    """docs/releases.md with its tables written anew; everything else stays."""
    sections = (f"## {title}\n\n{_table(dialect)}" for title, dialect in _with_releases().items())
    return with_parts(page, COMMAND, {"releases": "\n".join(sections)})


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
    PAGE.write_text(page_as_it_should_be(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
