"""Rendering of values as HTML: the Jinja2 environment, and the fragments of pages and streams.

All values in a template are escaped, and invisible characters (control characters, those that change the
direction of text) are written as `\\u202e`. Importing this module imports Jinja2, which takes a while:
`page_responses` does it in a thread at the first page.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import gmtime, strftime
from typing import Any, Final, final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gateway.admin.effects import share
from gateway.admin.ui.fragments import Fragment
from gateway.core.usage.summary import asked_for
from gateway.runtime.compiled import build_info

FRAGMENTS: Final = "fragments.html"
"""Template with one macro for each kind of fragment."""

MAX_NAME: Final = 120
"""Maximum characters shown of a name or a URL."""

NARROW_SPACE: Final = Markup("\u202f")
"""Separator of thousands, which does not break. It is markup, or it would be written as an escape."""

_LEAST_RATE: Final = 0.05
_PLAIN_RATE: Final = 9.95


@final
class Rendering:
    """The compiled page templates, and rendering by them."""

    def __init__(self) -> None:
        self.environment = Environment(
            loader=PackageLoader("gateway.admin.ui"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        filters = (short, percent, per_second, iso, clock, day, count, share, asked_for)
        self.environment.filters.update({each.__name__: each for each in filters})
        self.environment.globals["version"] = build_info().version
        for name in self.environment.list_templates():  # in the thread that loads them, not at first use
            self.environment.get_template(name)
        self._macros: Any = self.environment.get_template(FRAGMENTS).module

    def fragment(self, fragment: Fragment) -> Markup:
        html: Markup = getattr(self._macros, fragment.macro)(*fragment.values)
        return html

    def page(self, template: str, **values: object) -> str:
        return self.environment.get_template(template).render(**values)

    def pieces(self, template: str, **values: object) -> Iterator[str]:
        """Renders a long page in small pieces, between which other tasks may run."""
        return self.environment.get_template(template).generate(**values)


def visible(value: object) -> object:
    """Makes invisible characters of a text visible, before it is escaped. Markup from templates stays."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in value
    )


def short(text: str) -> str:
    """Cuts a name or a URL to the length that has room on the page."""
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


def percent(part: float) -> str:
    """Writes a share of the width of a drawing as an attribute: `12.34%`."""
    return f"{100.0 * part:.2f}%"


def per_second(rate: float) -> str:
    """Writes requests per second: `0`, `0.2`, `14`."""
    if rate < _LEAST_RATE:
        return "< 0.1" if rate > 0.0 else "0"
    return f"{rate:.1f}" if rate < _PLAIN_RATE else count(round(rate))


def count(number: int) -> str:
    """Writes a number as `12 345`, with a narrow space that does not break."""
    return NARROW_SPACE.join(f"{number:,}".split(","))


def iso(seconds: float) -> str:
    """Writes wall-clock seconds as `2026-11-20T13:43:28Z`, for machines."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(seconds))


def clock(seconds: float) -> str:
    """Writes wall-clock seconds as `14:05:09`, in UTC."""
    return strftime("%H:%M:%S", gmtime(seconds))


def day(seconds: float) -> str:
    """Writes wall-clock seconds as `23 Nov`, in UTC."""
    return strftime("%d %b", gmtime(seconds)).lstrip("0")
