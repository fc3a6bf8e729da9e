"""The view of the demonstration: every fact is in it, and it fits any terminal."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from gateway.demo.scene import KeyCommand, Scene
from gateway.demo.view import screen
from tests.demo.scenes import COMPARE, END, MIDDLE, PROBLEMS

SCENES = pytest.mark.parametrize("scene", [MIDDLE, END, PROBLEMS, COMPARE])
BAR = "━╸╺"


def written(scene: Scene, width: int = 80, height: int = 24, *, colours: bool = False) -> str:
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
    ).print(screen(scene, width, height), end="")
    return out.getvalue()


def shown(scene: Scene, width: int = 80, height: int = 24) -> list[str]:
    """The lines of the screen."""
    lines = written(scene, width, height).removesuffix("\n").split("\n")
    assert len(lines) == height
    assert all(cell_len(line) <= width for line in lines), lines
    return lines


def row(lines: list[str], name: str) -> str:
    """The first line that begins with `name`, without what aligns it and without bars."""
    words = next(words for line in lines if (words := line.split())[: len(name.split())] == name.split())
    return " ".join(word for word in words if word[0] not in BAR)


def test_the_head_says_where_it_stands() -> None:
    lines = shown(MIDDLE)

    assert lines[0].split() == ["skewgate", MIDDLE.page, "12.4", "of", "30", "s"]
    assert row(lines, "step") == "step 5 of 12: api-3 is upgraded to Caracal 1,932 requests lost 0"
    assert "PAUSED" in shown(PROBLEMS)[0]
    assert " 12.4 s" in shown(MIDDLE._replace(length=None))[0]


def test_a_service_is_shown_with_its_offer_and_all_of_its_backends() -> None:
    lines = shown(MIDDLE)

    assert row(lines, "baremetal") == "baremetal mixed 1.83-1.90 waits for api-3, api-4"
    assert row(lines, "offer") == "offer 1.1-1.82"
    assert row(lines, "api-1") == "api-1 1.1-1.90 fresh running 1,420"
    assert row(lines, "api-3") == "api-3 1.1-1.82 stale upgrading 0"
    assert row(lines, "inventory") == "inventory stabilizing 4-5 will be offered after the stabilization time"
    assert row(lines, "inv-2") == "inv-2 1-3 fresh running 116"
    assert row(shown(END), "baremetal") == "baremetal uniform nothing holds the offer"


def test_a_bar_is_as_long_as_its_range_and_all_have_one_axis() -> None:
    bars = {
        line.split()[0]: (min(map(line.index, found)), sum(map(line.count, BAR)))
        for line in shown(MIDDLE)
        if (found := [mark for mark in BAR if mark in line])
    }

    assert len({begin for begin, _ in bars.values()}) == 1
    whole = bars["api-1"][1]
    assert bars["api-4"][1] == pytest.approx(whole * 82 / 90, abs=1)
    assert bars["inv-2"][1] == pytest.approx(whole * 0.6, abs=1)


def test_every_kind_of_clients_has_its_numbers() -> None:
    lines = shown(MIDDLE)

    assert row(lines, "clients").startswith("clients answered refused lost")
    assert row(lines, "new 1.90").startswith("new 1.90 388 41 0 ")
    assert row(lines, "over-eager").startswith("over-eager 0 82 0")


def test_the_newest_events_come_first() -> None:
    text = "\n".join(shown(END))

    assert text.index("baremetal offers 1.1-1.90") < text.index("api-3 stops for its upgrade")


def test_a_loss_is_in_red_and_in_words() -> None:
    assert "old 1.31: 1.31: status 502" in "\n".join(shown(PROBLEMS))
    coloured = written(PROBLEMS, colours=True)
    assert "\x1b[1;31mkilled" in coloured
    assert "\x1b[1;31mlost 3" in coloured
    assert "\x1b[1;32mlost 0" in written(MIDDLE, colours=True)


def test_the_foot_has_commands_to_copy_whole_and_the_keys() -> None:
    lines = shown(MIDDLE)

    assert lines[-3].rstrip() == f" now   {MIDDLE.curl_served}"
    assert lines[-2].rstrip() == f" later {MIDDLE.curl_newest}"
    for command in KeyCommand:
        assert f"{command.key} {command.label}" in lines[-1]
    assert lines[-1].split()[-2:] == ["seed", "7"]
    assert "p continue" in shown(PROBLEMS)[-1]


def test_the_foot_says_now_once_the_newest_version_is_on_offer() -> None:
    assert shown(END)[-2].rstrip() == f" now   {END.curl_newest}"


@SCENES
def test_a_page_with_a_token_is_whole(scene: Scene) -> None:
    page = "http://127.0.0.1:33441/ui/ (token 0123456789abcdef)"

    assert shown(scene._replace(page=page))[0].startswith(f" skewgate  {page} ")


def test_two_fronts_stand_side_by_side() -> None:
    lines = shown(COMPARE)
    left, right = ([line[begin : begin + 40] for line in lines[2:-1]] for begin in (0, 40))

    assert left[0].startswith("skewgate ──")
    assert right[0].startswith("HAProxy 2.6.12, round robin ──")
    assert left[1].split() == ["lost", "0", "of", "1,932", "requests"]
    assert right[1].split() == ["lost", "143", "of", "1,711", "requests"]
    assert row(left, "offer") == "offer 1.1-1.82"
    assert row(right, "shown") == "shown 1.1-1.90"
    assert row(left, "api-3") == "api-3 1.1-1.82 upgrading"
    assert row(left, "api-1") == "api-1 1.1-1.90 fresh"
    assert row(right, "api-1") == "api-1 1.1-1.90 running"
    assert (row(left, "latest"), row(right, "latest")) == ("latest 407 0 0", "latest 325 0 47")
    assert right[-2].startswith(" 96 times: a version shown before")
    assert right[-1].startswith(" 47 times: 'latest' went backwards")


def test_a_large_terminal_shows_more() -> None:
    lines = shown(MIDDLE, 140, 40)

    assert row(lines, "api-1").endswith("Caracal (24.1)")
    assert "a controller of last year" in "\n".join(lines)
    assert all(event.text in "\n".join(lines) for event in MIDDLE.events)
    assert "api-3 stops for its upgrade" in "\n".join(shown(COMPARE, 140, 40))


def test_a_small_terminal_shows_what_matters_most() -> None:
    lines = shown(MIDDLE, 60, 15)

    for fact in ("lost 0", "mixed", "1.1-1.82", "upgrading", "q quit"):
        assert fact in "\n".join(lines)
    assert "curl" not in "\n".join(lines)


@SCENES
@pytest.mark.parametrize("size", [(200, 60), (40, 10), (20, 6), (5, 3), (1, 1)])
def test_it_fits_any_terminal(scene: Scene, size: tuple[int, int]) -> None:
    shown(scene, *size)


def test_no_text_is_markup() -> None:
    assert "[bold red]x" in "\n".join(shown(MIDDLE._replace(step="[bold red]x[/]")))
