"""How values become HTML: the Jinja2 environment, and the fragments that pages and streams have in common.

Everything that is put into a template is escaped, and what nobody can see (control characters, those that
turn the direction of text) is written as `\\u202e`. Importing this module imports Jinja2, which takes a
while: `documents` does it in a thread, when the first page is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import gmtime, strftime
from typing import Any, Final, final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gateway.admin.ui.fragments import Fragment
from gateway.runtime.compiled import build_info

FRAGMENTS: Final = "fragments.html"
"""One macro for each kind of fragment."""

TEMPLATES: Final = (FRAGMENTS, "service.html", "overview.html", "explain.html", "message.html")
"""Those of pages; each brings what it includes."""

MAX_NAME: Final = 120
"""Characters of a name or a URL that are shown."""

NARROW_SPACE: Final = Markup("\u202f")
"""Between thousands: it does not break. As markup, or it would be written out."""

_LEAST_RATE: Final = 0.05
_PLAIN_RATE: Final = 9.95


@final
class Rendering:
    """The templates, compiled."""

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
        filters = (short, percent, per_second, iso, clock, day, count, share)
        self.environment.filters.update({each.__name__: each for each in filters})
        self.environment.globals["version"] = build_info().version
        for name in TEMPLATES:
            self.environment.get_template(name)
        self._macros: Any = self.environment.get_template(FRAGMENTS).module

    def fragment(self, fragment: Fragment, *, commanding: bool) -> Markup:
        """One fragment of a page. `commanding`: whoever looks may command."""
        html: Markup = getattr(self._macros, fragment.macro)(*fragment.values, commanding=commanding)
        return html

    def page(self, template: str, **values: object) -> str:
        """A short page, whole."""
        return self.environment.get_template(template).render(**values)

    def pieces(self, template: str, **values: object) -> Iterator[str]:
        """A long page, in small pieces: others may run between two of them."""
        return self.environment.get_template(template).generate(**values)


def visible(value: object) -> object:
    """What is put into a page, before it is escaped: texts with everything in them that can be seen. Markup
    comes from our own templates and stays."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in value
    )


def short(text: str) -> str:
    """A name or a URL at a length that has room."""
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


def percent(part: float) -> str:
    """A part of the width of a drawing, as an attribute: `12.34%`."""
    return f"{100.0 * part:.2f}%"


def share(part: float) -> str:
    """A part of all, for people: `14 %`."""
    if 0.0 < part < 0.01:
        return "< 1 %"
    return f"{100.0 * part:.0f} %" if part <= 0.99 or part == 1.0 else "> 99 %"


def per_second(rate: float) -> str:
    """`0`, `0.2`, `14`: requests per second."""
    if rate < _LEAST_RATE:
        return "< 0.1" if rate > 0.0 else "0"
    return f"{rate:.1f}" if rate < _PLAIN_RATE else count(round(rate))


def count(number: int) -> str:
    """`12 345`, with a narrow space that does not break."""
    return NARROW_SPACE.join(f"{number:,}".split(","))


def iso(seconds: float) -> str:
    """A wall-clock time for machines."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(seconds))


def clock(seconds: float) -> str:
    """A wall-clock time for people, in UTC."""
    return strftime("%H:%M:%S", gmtime(seconds))


def day(seconds: float) -> str:
    """`23 Nov`, in UTC."""
    return strftime("%d %b", gmtime(seconds)).lstrip("0")
