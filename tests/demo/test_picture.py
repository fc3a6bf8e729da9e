"""The picture of the README: what it says, that it fits, is safe, and is drawn from the stored recording."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from xml.etree.ElementTree import Element, fromstring

import pytest

from gateway.demo import picture, svg
from gateway.demo.picture import description, draw, headline, setting
from gateway.demo.recording import Recording, Result, Sample, Stage, Track
from gateway.demo.svg import Scheme
from tests.demo.pictures import IMAGES, alternative, stored
from tests.docs.pages import page

OLD, NEW = "1.1-1.58", "1.1-1.90"
NAMESPACE: Final = "{http://www.w3.org/2000/svg}"
SHAPES: Final = {"svg", "title", "desc", "style", "rect", "text", "polyline", "path"}
ATTRIBUTES: Final = {
    *("viewBox", "width", "height", "role", "aria-labelledby", "font-family", "id", "class"),
    *("x", "y", "rx", "text-anchor", "points", "d"),
}
HOSTILE: Final = [
    "<script>alert(1)</script>",
    '"/><image href="http://evil.example/x.png"/>',
    "]]></style><style>*{fill:url(http://evil.example)}",
    "&evil;&#0;",
    "\x00\x1b[31m\u202e\ud800\ufffe\nnew line",
    "w" * 100_000,
]


def recording(**changes: Any) -> Recording:
    """A short course: one server, a balancer that loses three requests, and the gateway."""
    stages = (
        Stage(0.0, "Train", "running", OLD),
        Stage(3.0, "Train", "upgrading", OLD),
        Stage(4.0, "Caracal", "running", NEW),
    )
    samples = (
        Sample(0.0, ("", ""), (0, 0)),
        Sample(1.0, (OLD, OLD), (0, 0)),
        Sample(4.0, (OLD, NEW), (0, 2)),
        Sample(5.0, (OLD, OLD), (0, 2)),
        Sample(6.0, (NEW, NEW), (0, 3)),
        Sample(10.0, (NEW, NEW), (0, 3)),
    )
    results = (
        Result("skewgate", 100, 98, 2, 0, ()),
        Result("HAProxy 2.6.12, round robin", 101, 96, 2, 3, (("no answer", 2), ("went back", 1))),
    )
    made = Recording(10.0, 7, "baremetal", samples, (Track("baremetal", "api-1", stages),), results)
    return made._replace(**changes)


def parsed(image: str) -> Element:
    return fromstring(image)  # noqa: S314 - made by us a moment ago


def elements(image: str) -> Iterator[Element]:
    return parsed(image).iter()


def texts(image: str) -> list[str]:
    return [each.text or "" for each in elements(image) if each.tag == f"{NAMESPACE}text"]


# -- the pictures of the README


@pytest.mark.parametrize("scheme", IMAGES)
def test_the_stored_picture_is_drawn_from_the_stored_recording(scheme: Scheme) -> None:
    assert IMAGES[scheme].read_text(encoding="utf-8") == draw(stored(), scheme), (
        "draw it anew: python -m tests.demo.pictures"
    )


def test_the_readme_begins_with_the_picture_for_light_and_dark() -> None:
    top = page("README.md").split("\n## ")[0]

    assert 'media="(prefers-color-scheme: dark)" srcset="docs/images/demo-dark.svg"' in top
    assert 'src="docs/images/demo-light.svg"' in top


def test_the_words_beside_the_picture_have_its_sums() -> None:
    shown = stored()

    assert re.findall(r'alt="([^"]*)"', page("README.md")) == [alternative(shown)]
    assert shown.results[0].lost == 0
    assert shown.results[1].name.startswith("HAProxy")
    assert shown.results[1].lost > 0


# -- what it says


def test_it_says_who_lost_what_and_why() -> None:
    words = texts(draw(recording()))

    assert "One rolling upgrade: HAProxy lost 3 of 101 requests, skewgate none" in words
    assert {
        "HAProxy 2.6.12, round robin",
        "3 lost",
        "of 101 requests",
        "skewgate",
        "0 lost",
        "beside that, 2 refused: never shown",
    } <= set(words)
    assert {"2 \N{MULTIPLICATION SIGN} no answer", "1 \N{MULTIPLICATION SIGN} went back"} <= set(words)
    assert {
        "Train: 1.1\N{EN DASH}1.58",
        "Caracal: 1.1\N{EN DASH}1.90",
        "api-1",
        "old release",
        "new release",
    } <= set(words)
    assert "The range that clients see moved once." in " ".join(words)
    assert "The range that clients see moved 3 times." in " ".join(words)


def test_it_says_the_same_to_those_who_do_not_see_it() -> None:
    root = parsed(draw(recording()))
    title, desc = (root.find(f"{NAMESPACE}{name}") for name in ("title", "desc"))

    assert root.get("role") == "img"
    assert title is not None
    assert title.text == headline(recording())
    assert desc is not None
    assert desc.text == description(recording())
    assert "HAProxy 2.6.12, round robin: 3 of 101 requests were lost. 2 times: no answer." in str(desc.text)


def test_without_a_balancer_it_shows_the_gateway_alone() -> None:
    alone = recording(
        results=recording().results[:1],
        samples=tuple(
            each._replace(offers=each.offers[:1], lost=each.lost[:1]) for each in recording().samples
        ),
    )

    assert headline(alone) == "One rolling upgrade: skewgate lost none of 100 requests"
    assert setting(alone).endswith("Clients send requests for 10 seconds.")
    assert "lost" in texts(draw(alone))
    assert not any("HAProxy" in words for words in texts(draw(alone)))


def test_what_the_gateway_lost_is_not_kept_quiet() -> None:
    ours, other = recording().results
    bad = recording(results=(ours._replace(lost=4, losses=(("no answer", 4),)), other))

    assert headline(bad).endswith("skewgate 4")
    assert {"4 lost", "4 \N{MULTIPLICATION SIGN} no answer"} <= set(texts(draw(bad)))
    assert "sum good" not in draw(bad)


def test_a_range_has_one_height_in_all_cards_and_the_line_moves_between_them() -> None:
    lines = re.findall(r'<polyline points="([^"]*)" class="offer( calm)?"/>', draw(recording()))
    heights = [[float(point.split(",")[1]) for point in points.split()] for points, calm in lines]
    low, high = picture.LOW, picture.HIGH

    assert [calm for _, calm in lines] == ["", " calm"]
    steps = [[y - min(each) for y in each] for each in heights]
    assert steps[0] == [low - high, low - high, 0, 0, low - high, low - high, 0, 0]
    assert steps[1] == [low - high, low - high, 0, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": ()},
        {"samples": (Sample(0.0, ("", ""), (0, 0)),)},
        {"samples": (Sample(0.0, (OLD, OLD), (9, 9)),)},
        {"tracks": ()},
        {"tracks": (Track("a", "b", (Stage(0.0, "", "killed", ""),)),) * 40},
        {"seconds": 0.0},
        {"seconds": 86_400.0},
        {"samples": tuple(Sample(n / 1, (f"1-{n}", f"{n}"), (0, n)) for n in range(9))},
    ],
)
def test_any_course_can_be_drawn(changes: dict[str, Any]) -> None:
    image = draw(recording(**changes))

    assert image == draw(recording(**changes))
    assert "nan" not in image
    assert {each.tag.removeprefix(NAMESPACE) for each in elements(image)} <= SHAPES


# -- what it must not do


@pytest.mark.parametrize("scheme", Scheme)
def test_it_loads_nothing_and_runs_nothing(scheme: Scheme) -> None:
    image = draw(stored(), scheme)

    assert_harmless(image)
    assert image.count("http") == 1  # the name of the format


def assert_harmless(image: str) -> None:
    for each in elements(image):
        assert each.tag.removeprefix(NAMESPACE) in SHAPES
        assert set(each.keys()) <= ATTRIBUTES
        if each.tag == f"{NAMESPACE}style":
            assert not re.search(r"url|import|font-face|@(?!media)", each.text or "")


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_texts_are_shown_as_they_are(words: str) -> None:
    hostile = Recording(
        10.0,
        7,
        words,
        tuple(each._replace(offers=(words, words)) for each in recording().samples),
        (Track(words, words, (Stage(0.0, words, "running", words), Stage(5.0, words, words, words))),),
        (Result(words, 1, 0, 0, 1, ((words, 1),)), Result(words, 1, 0, 0, 1, ((words, 1),))),
    )
    image = draw(hostile)

    assert_harmless(image)
    assert len(image.encode()) < 30_000
    image.encode("utf-8")
    assert_fits(image)
    assert [each for each in texts(image) if not each.isprintable()] == []


# -- how it looks


@pytest.mark.parametrize("made", [stored(), recording()])
def test_no_text_runs_over_the_edge(made: Recording) -> None:
    assert_fits(draw(made))


def assert_fits(image: str) -> None:
    sizes = {
        "headline": 20 * picture.BOLD,
        "name": 16 * picture.BOLD,
        "sum": 34 * picture.BOLD,
        "small": 12.0,
    }
    for each in elements(image):
        if each.tag != f"{NAMESPACE}text":
            continue
        kind = (each.get("class") or "").split() or [""]
        width = len(each.text or "") * sizes.get(kind[0], 13.0) * svg.WIDEST
        x = float(each.get("x") or 0)
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[each.get("text-anchor") or "start"]
        assert x - share * width >= 0, each.text
        assert x + (1 - share) * width <= picture.WIDTH, each.text


@pytest.mark.parametrize("scheme", [Scheme.LIGHT, Scheme.DARK])
def test_every_text_can_be_read(scheme: Scheme) -> None:
    """The contrast that WCAG 2 asks for in level AA: 4.5 for texts, 3 for what lines show."""
    colours = {
        selector: re.findall(r"#[0-9a-f]{6}", rule)
        for selector, rule in re.findall(r"([^{}\n]+)\{([^}]*)\}", draw(recording(), scheme))
    }
    backgrounds = [colours[".paper"][0], colours[".card"][0]]

    for name in ("text", ".muted", ".bad", ".good"):
        assert min(contrast(colours[name][0], each) for each in backgrounds) >= 4.5, name
    for name, below in ((".on-old", ".old"), (".on-new", ".new")):
        assert contrast(colours[name][0], colours[below][0]) >= 4.5, name
    for name in (".offer", ".offer.calm", ".loss", ".down"):
        assert min(contrast(colours[name][0], each) for each in backgrounds) >= 3, name


def test_one_file_can_follow_the_viewer() -> None:
    both, light, dark = (draw(recording(), scheme) for scheme in (Scheme.BOTH, Scheme.LIGHT, Scheme.DARK))

    assert "@media(prefers-color-scheme:dark)" in both
    assert "@media" not in light + dark
    assert light != dark


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
