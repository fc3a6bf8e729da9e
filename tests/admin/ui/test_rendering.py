"""What is put into a page is escaped, visible and bounded."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from gateway.admin import effects
from gateway.admin.ui import fragments, rendering
from gateway.admin.ui.fragments import Fragment
from gateway.admin.ui.model import BackendRow, Bar, EventRow, HealthCard
from gateway.admin.ui.rendering import Rendering
from gateway.core.versions.axis import Tick
from tests.admin.ui.pages_testbed import Page

HOSTILE = "<img src=x onerror=alert(1)>\"'&\x1b[31m\u202eevil\u2066\x00\n</td>"
"""Markup, quotes, control characters, and characters that turn the direction of text."""

BACKEND = BackendRow(
    "r-1", "api-1", "http://x", "1.1-1.58", (), "fresh", "in service", False, "", 0, None, 0.0, None
)


@pytest.fixture(scope="module")
def templates() -> Rendering:
    return Rendering()


def row(templates: Rendering, backend: BackendRow, *, commanding: bool = True) -> Page:
    part = Fragment("backend", ("baremetal", (Bar(0.0, 0.5, "1.1-1.58"),), backend, commanding))
    return Page(str(templates.fragment(part)))


def test_hostile_texts_become_text(templates: Rendering) -> None:
    backend = BACKEND._replace(name=HOSTILE, url=HOSTILE, serves=HOSTILE, note=HOSTILE, state=HOSTILE)

    shown = row(templates, backend)

    assert "img" not in {tag for tag, _ in shown.tags}
    assert not any(name.startswith("on") for _, each in shown.tags for name in each)
    assert r"<img src=x onerror=alert(1)>" in shown.text
    assert r"\x1b[31m\u202eevil\u2066\x00\n</td>" in shown.text
    assert shown.html.replace("\n", "").isprintable()


def test_hostile_texts_stay_in_their_attributes(templates: Rendering) -> None:
    shown = row(templates, BACKEND._replace(name=HOSTILE, serves=HOSTILE))

    (bars,) = shown.named("svg")
    (link,) = shown.named("a")
    assert bars["aria-label"] == rendering.visible(HOSTILE)
    assert str(link["href"]).startswith("/ui/services/baremetal/confirm?do=drain&backend=%3Cimg")


@pytest.mark.parametrize(
    "part",
    [
        Fragment("health", (HealthCard("bad", HOSTILE, (HOSTILE,)),)),
        Fragment("event", (EventRow(1, 0.0, "backend", "error", HOSTILE, HOSTILE), True)),
    ],
)
def test_every_kind_of_text_is_escaped(templates: Rendering, part: Fragment) -> None:
    shown = Page(str(templates.fragment(part)))

    assert "img" not in {tag for tag, _ in shown.tags}
    assert r"onerror=alert(1)" in shown.text
    assert "\u202e" not in shown.html


def test_texts_have_a_direction_of_their_own(templates: Rendering) -> None:
    """Hebrew can be seen and stays, and does not turn what stands beside it."""
    shown = row(templates, BACKEND._replace(name="שלום", note="שלום"))

    assert shown.html.count("<bdi") == 3
    assert "שלום" in shown.text


def test_long_names_are_cut(templates: Rendering) -> None:
    shown = row(templates, BACKEND._replace(name="n" * 5000, url="u" * 5000), commanding=False)

    assert "n" * rendering.MAX_NAME not in shown.html
    assert len(shown.html) < 3000


def test_whoever_may_not_command_has_no_controls(templates: Rendering) -> None:
    assert row(templates, BACKEND, commanding=False).named("a") == []
    assert len(row(templates, BACKEND).named("a")) == 1


def test_undefined_names_are_errors(templates: Rendering) -> None:
    with pytest.raises(UndefinedError):
        templates.page("message.html", heading="without a sentence")


def test_only_what_cannot_be_seen_is_written_out() -> None:
    assert rendering.visible("a ü שלום 漢字") == "a ü שלום 漢字"
    assert rendering.visible("a\u200bb\u2028\udc80") == r"a\u200bb\u2028\udc80"
    assert rendering.visible(Markup("<b>\n")) == "<b>\n"
    assert rendering.visible(3) == 3


@pytest.mark.parametrize(
    "part, text", [(0.0, "0 %"), (0.004, "< 1 %"), (0.14, "14 %"), (0.996, "> 99 %"), (1.0, "100 %")]
)
def test_shares(part: float, text: str) -> None:
    assert effects.share(part) == text


@pytest.mark.parametrize(
    "rate, text",
    [(0.0, "0"), (0.04, "< 0.1"), (0.16, "0.2"), (9.94, "9.9"), (14.4, "14"), (12345.0, "12\u202f345")],
)
def test_rates(rate: float, text: str) -> None:
    assert rendering.visible(rendering.per_second(rate)) == text


def test_labels_without_room_are_left_out_first_on_a_narrow_screen() -> None:
    labels = (
        Tick(0.0, "1.1"),
        Tick(0.1, "1.10"),
        Tick(0.64, "1.58"),
        Tick(0.66, "1.60"),
        Tick(1.0, "1.90"),
    )

    found = fragments.axis_labels(labels)

    assert [(each.text, each.anchor) for each in found] == [
        ("1.1", "start"),
        ("1.58", "middle"),
        ("1.90", "end"),
    ]
    assert not any(each.only_wide for each in found)


def test_labels_with_room_on_a_wide_screen_only() -> None:
    labels = tuple(Tick(number / 8.0, f"1.{number}0") for number in (0, 8, *range(1, 8)))

    found = fragments.axis_labels(labels)

    assert [each.text for each in found] == [label.text for label in sorted(labels)]
    assert [each.text for each in found if not each.only_wide] == ["1.00", "1.30", "1.50", "1.80"]


def test_no_labels() -> None:
    assert fragments.axis_labels(()) == ()
