"""The picture of the demonstration: every fact is in it, it fits any terminal, and no text can break it."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gateway.demo.command import Command
from gateway.demo.drawing import (
    ASCII,
    UNICODE,
    Glyphs,
    glyphs_for,
    label_line,
    large,
    offer_bar,
    span_bar,
    wrap,
)
from gateway.demo.scene import (
    BackendScene,
    Bar,
    ClientScene,
    Event,
    FrontScene,
    Label,
    Scene,
    ServiceScene,
)
from gateway.demo.view import screen, summary
from tests.demo.scenes import COMPARE, END, MIDDLE, PROBLEMS
from tests.kit.examples import examples

SCENES = pytest.mark.parametrize("scene", [MIDDLE, END, PROBLEMS, COMPARE])


def written(picture: Text, width: int, height: int, *, colours: bool = False) -> str:
    """What a terminal gets."""
    out = io.StringIO()
    Console(
        file=out,
        width=width,
        height=height,
        force_terminal=colours,
        color_system="standard" if colours else None,
        legacy_windows=False,
        _environ={},
    ).print(picture, end="")
    return out.getvalue()


def shown(scene: Scene, width: int = 80, height: int = 24, glyphs: Glyphs = UNICODE) -> list[str]:
    """The lines of the screen."""
    made = screen(scene, width, height, glyphs)
    lines = made.plain.split("\n")
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines), lines
    assert written(made, width, height).split("\n") == lines
    return lines


def row(lines: list[str], name: str) -> str:
    """The first line that begins with `name`."""
    return next(line for line in lines if line.split()[: len(name.split())] == name.split())


def words(line: str) -> str:
    """The line without what aligns it."""
    return " ".join(line.split())


# --- the facts


@SCENES
def test_the_usual_terminal_is_filled_exactly(scene: Scene) -> None:
    assert len(shown(scene)) == 24


def test_the_head_says_what_this_is_and_where_it_stands() -> None:
    lines = shown(MIDDLE)
    assert words(lines[0]) == "skewgate demo rolling upgrade, live seed 7 12.4 of 30 s"
    assert lines[1].split("   ")[0].strip() == "▸ 5 of 12: api-3 is upgraded to Caracal"
    assert lines[1].rstrip().endswith("1,932 requests   ✓ lost 0")
    assert "PAUSED" not in lines[0]
    assert "PAUSED" in shown(PROBLEMS)[0]
    assert "12.4 s" in shown(MIDDLE._replace(length=None))[0]


def test_a_service_is_shown_with_its_offer_and_all_of_its_backends() -> None:
    lines = shown(MIDDLE)
    assert row(lines, "baremetal").split("  ") == [
        " baremetal",
        "mixed",
        "api-3 and api-4 hold back 1.59-1.90: upgrade them",
    ]
    axis, offer = lines[3], lines[4]
    assert axis.split() == ["1.1", "1.58", "1.90"]
    assert offer.split() == ["offer", "█" * 20, "1.1-1.58"]
    assert words(row(lines, "api-1")) == f"api-1 {'━' * 20}{'─' * 11} 1.1-1.90 ● fresh running 14/s"
    assert words(row(lines, "api-3")) == f"api-3 {'━' * 20} 1.1-1.58 ◐ stale upgrading 0/s"
    assert row(lines, "inventory").endswith("  4-5 is offered when it has stood for 1.2 s")
    assert words(row(lines, "inv-2")).endswith(" 1-3 ● fresh running 12/s")
    begins = {line.index(mark) for line in lines[4:9] for mark in "█━" if mark in line}
    assert len(begins) == 1  # one axis for all


def test_what_nothing_holds_says_so() -> None:
    assert row(shown(END), "baremetal").split("  ") == [" baremetal", "uniform", "nothing holds the offer"]


def test_every_kind_of_clients_has_its_numbers() -> None:
    lines = shown(MIDDLE)
    assert words(row(lines, "clients")) == "clients answered refused lost events"
    assert words(row(lines, "new 1.90")).startswith("new 1.90 388 41 0 ")
    assert words(row(lines, "over-eager")).startswith("over-eager 0 82 0 ")
    assert words(row(lines, "inventory 3")) == "inventory 3 203 0 0"


def test_the_newest_events_are_shown_and_the_newest_is_the_last() -> None:
    text = "\n".join(shown(END))
    times = [float(found) for found in re.findall(r"^.{36,48}? (\d+\.\d) [·▸▴] ", text, re.MULTILINE)]
    assert times == [9.0, 11.2, 11.6, 21.0]
    assert "▴ baremetal offers 1.1-1.90" in text


def test_a_loss_is_in_red_and_in_words() -> None:
    text = "\n".join(shown(PROBLEMS))
    assert "✗ lost 3" in text
    assert "✗ lost: old 1.31: GET /v1/nodes at" in text
    assert "1.31: 502 after bytes were sent" in text
    coloured = written(screen(PROBLEMS, 80, 24), 80, 24, colours=True)
    assert "\x1b[1;31mkilled" in coloured
    assert "\x1b[1;31m✗ lost 3" in coloured
    assert "\x1b[1;32m✓ lost 0" in written(screen(MIDDLE, 80, 24), 80, 24, colours=True)


def test_the_foot_has_commands_to_copy_whole_and_the_keys() -> None:
    lines = shown(MIDDLE)
    assert lines[-3] == f" 200      {MIDDLE.curl_served}"
    assert lines[-2] == f" 406→200  {MIDDLE.curl_refused}"
    for command in Command:
        assert f"{command.key} {command.label}" in lines[-1]
    assert lines[-1].endswith(MIDDLE.page)
    assert "p go on" in shown(PROBLEMS)[-1]


def test_a_long_command_is_whole_as_long_as_it_can_be() -> None:
    for length in (70, 73, 80):
        command = "curl ".ljust(length, "x")
        assert any(line.endswith(command) for line in shown(MIDDLE._replace(curl_served=command))), length


@pytest.mark.parametrize("scene", [MIDDLE, COMPARE, PROBLEMS])
def test_a_page_with_a_token_is_whole(scene: Scene) -> None:
    page = "http://127.0.0.1:33441/ui/ (token 0123456789abcdef)"
    lines = shown(scene._replace(page=page))
    assert lines[0].startswith(f" skewgate  {page}  ")
    assert ("PAUSED" in lines[0]) is scene.paused
    assert shown(scene._replace(page=page), 120)[-1].endswith(page)


def test_two_fronts_stand_side_by_side() -> None:
    lines = shown(COMPARE)
    halves = [line.split("│") for line in lines[2:-1]]
    assert {len(half) for half in halves} == {2}
    left, right = ([half[side].strip() for half in halves] for side in (0, 1))
    assert (left[0], right[0]) == ("skewgate", "HAProxy 2.6.12, round robin")
    assert left[1:4] == [
        "█▀█  ✓ lost 0 of 1,932 requests",
        "█ █  1,809 answered",
        "▀▀▀  123 refused, and told why",
    ]
    assert right[1].endswith("✗ lost 143 of 1,711")
    assert right[2].endswith("1,445 answered")
    assert words(left[4]) == "baremetal mixed 1.1-1.58"
    assert set(left[5]) == {"█"}
    assert words(left[6]) == "api-1 api-2 api-3 upgrading api-4"
    assert words(right[4]) == "baremetal last shown 1.1-1.90"
    assert len(right[5]) > len(left[5])
    assert words(row(left, "latest")) == "latest 407 0 0"
    assert words(row(right, "latest")) == "latest 325 0 47"
    assert "✓ nothing was lost" in left
    assert right[-4:] == [
        "78× 406 for a version that was negoti…",  # noqa: RUF001
        "47× executed at another version",  # noqa: RUF001
        "18× 502, the server was down",  # noqa: RUF001
        "9× the range on show fell",  # noqa: RUF001
    ]


def test_a_large_terminal_shows_more() -> None:
    lines = shown(MIDDLE, 140, 40)
    text = "\n".join(lines)
    assert row(lines, "api-1").split()[-3:-1] == ["Caracal", "(24.1)"]
    assert "a script that wants the newest" in text
    assert all(f"{event.seconds:5.1f} " in text for event in MIDDLE.events)
    both = "\n".join(shown(COMPARE, 140, 50))
    assert both.count("1.90") >= 2
    assert len(re.findall(r"api-1 ━+", both)) == 2


def test_a_small_terminal_shows_what_matters_most() -> None:
    lines = shown(MIDDLE, 60, 15)
    text = "\n".join(lines)
    for fact in ("✓ lost 0", "mixed", "1.1-1.58", "api-3 upgrading", "q quit", "offer  █"):
        assert fact in text
    assert "curl" not in text
    both = shown(COMPARE, 60, 24)
    assert "lost 143" in "\n".join(both)
    assert words(row(both, "latest")) == "latest 0 0 │ latest 0 47"  # refused and lost


def test_the_summary_is_the_last_picture_without_keys_and_commands() -> None:
    text = written(summary(PROBLEMS, 90), 90, 60)
    assert all(each.kind in text for each in MIDDLE.fronts[0].clients)
    for left_out in ("curl", "quit", "PAUSED"):
        assert left_out not in text


def test_the_summary_names_every_front_with_its_loss() -> None:
    lines = written(summary(COMPARE, 80), 80, 60).split("\n")
    assert lines[-2].strip() == "skewgate: ✓ lost 0 of 1,932 requests"
    assert lines[-1].strip() == "HAProxy 2.6.12, round robin: ✗ lost 143 of 1,711 requests"


# --- texts from outside


HOSTILE = (
    "[bold red]x[/] \x1b[2J\x1b]0;owned\x07\r\n\t:smile: \u202e\ud800 e\u0301" + "\u0301" * 500 + "漢字" * 200
)


def _hostile(scene: Scene, text: str) -> Scene:
    """The same scene with `text` wherever a text can stand."""

    def service(one: ServiceScene) -> ServiceScene:
        backends = tuple(
            each._replace(name=text, release=text, serves=text, state=text, freshness=text)
            for each in one.backends
        )
        labels = tuple(each._replace(text=text) for each in one.labels)
        return ServiceScene(text, text, one.offer_bars, text, text, labels, backends)

    fronts = tuple(
        each._replace(
            name=text,
            services=tuple(map(service, each.services)),
            clients=tuple(one._replace(kind=text, program=text, last_loss=text) for one in each.clients),
            losses=((text, 7),),
        )
        for each in scene.fronts
    )
    events = tuple(each._replace(text=text, kind=text) for each in scene.events)
    return scene._replace(
        step=text, fronts=fronts, events=events, curl_served=text, curl_refused=text, page=text
    )


@SCENES
@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 10)])
def test_no_text_is_markup_or_a_command_for_the_terminal(scene: Scene, size: tuple[int, int]) -> None:
    lines = shown(_hostile(scene, HOSTILE), *size)
    text = "".join(lines)
    assert text.isprintable()
    assert "[bold red]x" in text  # as it came
    assert "\u0301" not in text
    assert "…" in text
    coloured = written(screen(_hostile(scene, HOSTILE), *size), *size, colours=True)
    assert not re.sub(r"\x1b\[[0-9;]*m", "", coloured).count("\x1b")


def test_a_long_name_ends_in_an_ellipsis() -> None:
    service = MIDDLE.fronts[0].services[0]
    named = service._replace(backends=(service.backends[0]._replace(name="api-" + "9" * 80),))
    scene = MIDDLE._replace(fronts=(MIDDLE.fronts[0]._replace(services=(named,)),))
    assert any(line.startswith("  api-99999999999… ") for line in shown(scene))


@SCENES
def test_a_terminal_without_unicode_gets_ascii(scene: Scene) -> None:
    lines = shown(_hostile(scene, "漢 é ✓"), glyphs=glyphs_for("ascii"))
    assert "".join(lines).isascii()
    lines = shown(scene, glyphs=ASCII)
    assert "".join(lines).isascii()
    if scene is MIDDLE:
        assert row(lines, "api-1").split()[1] == "=" * 20 + "-" * 11
        assert "+ lost 0" in lines[1]
        assert "* fresh" in row(lines, "api-2")


def test_the_characters_are_chosen_by_the_encoding() -> None:
    assert glyphs_for("utf-8") is UNICODE
    for encoding in ("ascii", "iso-8859-1", "koi8-r", "nonsense", None):
        assert glyphs_for(encoding) is ASCII


# --- drawing


def test_bars_are_exact_to_half_a_cell() -> None:
    assert offer_bar([(0.0, 0.5)], 10, UNICODE) == "█████     "
    assert offer_bar([(0.05, 0.55)], 10, UNICODE) == "▐████▌    "
    assert offer_bar([(0.999, 1.0)], 10, UNICODE) == "         ▐"  # never nothing
    assert offer_bar([(0.0, 0.2), (0.8, 1.0)], 10, UNICODE) == "██      ██"
    assert offer_bar([], 4, UNICODE) == "    "


def test_what_is_served_and_not_offered_is_thin() -> None:
    def drawn(bars: list[tuple[float, float]], offered: list[tuple[float, float]], glyphs: Glyphs) -> str:
        return "".join(text for text, _ in span_bar(bars, offered, 8, glyphs, ("", "dim")))

    assert drawn([(0.0, 1.0)], [(0.0, 0.5)], UNICODE) == "━━━━────"
    assert drawn([(0.0, 1.0)], [(0.25, 9 / 16)], UNICODE) == "──━━╾───"
    assert drawn([(1 / 16, 15 / 16)], [(0.5, 1.0)], UNICODE) == "╶───━━━╸"
    assert drawn([(0.0, 1.0)], [(3 / 16, 0.5)], UNICODE) == "─╼━━────"
    assert drawn([(0.0, 0.5)], [], UNICODE) == "━━━━    "  # no offer to compare it with
    assert drawn([(0.0, 1.0)], [(0.0, 0.5)], ASCII) == "====----"


def test_labels_stand_over_their_place_and_not_on_each_other() -> None:
    assert label_line([(0.0, "1.1"), (0.5, "1.58"), (1.0, "1.90")], 20, UNICODE) == "1.1     1.58    1.90"
    assert label_line([(0.0, "1.1"), (0.9, "1.58"), (1.0, "1.90")], 20, UNICODE) == "1.1             1.90"
    assert label_line([(0.5, "much too long")], 5, UNICODE) == "     "


def test_large_digits_have_three_lines() -> None:
    assert large(17, UNICODE) == ["▄█  ▀▀█", " █   ▄▀", "▀▀▀  ▀ "]
    assert large(17, ASCII) == ["  ", "17", "  "]
    assert {len(line) for line in large(1234567890, UNICODE)} == {39}


def test_a_long_sentence_takes_two_lines() -> None:
    assert wrap("one two three", 20, UNICODE) == ["one two three"]
    assert wrap("one two three", 8, UNICODE) == ["one two", "three"]
    assert wrap("one two three four", 8, UNICODE) == ["one two", "three f…"]
    assert wrap("oneandtwoandthree", 8, UNICODE) == ["oneandtw", "oandthr…"]
    assert wrap("", 8, UNICODE) == []


# --- anything


TEXTS = st.text(st.characters(), max_size=90)
COUNTS = st.integers(0, 10**12)
SHARES = st.floats(0, 1)
BARS = st.lists(st.tuples(SHARES, SHARES).map(lambda ends: Bar(min(ends), max(ends))), max_size=3).map(tuple)
BACKENDS = st.builds(
    BackendScene,
    name=TEXTS,
    release=TEXTS,
    serves=TEXTS,
    bars=BARS,
    freshness=st.sampled_from(["fresh", "stale", "lost", "unknown", ""]) | TEXTS,
    state=st.sampled_from(["running", "upgrading", "killed", "hanging"]) | TEXTS,
    rate=st.floats(0, 1e9),
)
SERVICES = st.builds(
    ServiceScene,
    name=TEXTS,
    offer=TEXTS,
    offer_bars=BARS,
    phase=st.sampled_from(["uniform", "mixed"]) | TEXTS,
    held=TEXTS,
    labels=st.lists(st.builds(Label, SHARES, TEXTS), max_size=5).map(tuple),
    backends=st.lists(BACKENDS, max_size=5).map(tuple),
)
CLIENTS = st.builds(
    ClientScene, kind=TEXTS, program=TEXTS, answered=COUNTS, refused=COUNTS, lost=COUNTS, last_loss=TEXTS
)
FRONTS = st.builds(
    FrontScene,
    name=TEXTS,
    services=st.lists(SERVICES, max_size=3).map(tuple),
    clients=st.lists(CLIENTS, max_size=7).map(tuple),
    requests=COUNTS,
    answered=COUNTS,
    refused=COUNTS,
    lost=COUNTS,
    losses=st.lists(st.tuples(TEXTS, COUNTS), max_size=6).map(tuple),
)
ANY_SCENE = st.builds(
    Scene,
    seconds=st.floats(0, 1e6),
    length=st.none() | st.floats(0, 1e6),
    seed=st.integers(),
    paused=st.booleans(),
    step=TEXTS,
    fronts=st.lists(FRONTS, max_size=2).map(tuple),
    events=st.lists(st.builds(Event, st.floats(0, 1e6), TEXTS, TEXTS), max_size=9).map(tuple),
    curl_served=TEXTS,
    curl_refused=TEXTS,
    page=TEXTS,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    scene=ANY_SCENE,
    width=st.integers(1, 160),
    height=st.integers(1, 60),
    glyphs=st.sampled_from([UNICODE, ASCII]),
)
def test_any_scene_fits_any_terminal(scene: Scene, width: int, height: int, glyphs: Glyphs) -> None:
    text = "".join(shown(scene, width, height, glyphs))
    assert text.isprintable()
    assert glyphs.unicode or text.isascii()
    assert all(cell_len(line) <= width for line in summary(scene, width, glyphs).plain.split("\n"))
