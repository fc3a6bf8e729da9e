"""Files that are included: their services, the positions of their problems, and files that cannot be used."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from gateway.settings import Loaded, read_file
from gateway.settings.files import MAX_FILES
from tests.settings.dialects import DIALECTS

MAIN = "listen: 127.0.0.1:8080\ninclude: conf.d/*.yaml\n"
ONE = (
    "  {}:\n    dialect: plain\n    match: {{path: /{}}}\n    backends:\n      - url: http://127.0.0.1:6385\n"
)

Read: TypeAlias = Callable[..., Loaded]


def services(*names: str) -> str:
    return "services:\n" + "".join(ONE.format(name, name) for name in names)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a main file and files beside it, and reads the main one."""

    def read(main: str, files: Mapping[str, str | bytes] | None = None, **environ: str) -> Loaded:
        (tmp_path / "conf.d").mkdir(exist_ok=True)
        for name, content in (files or {}).items():
            path = tmp_path / "conf.d" / name
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "main.yaml").write_text(main)
        return read_file(tmp_path / "main.yaml", environ=environ, dialects=DIALECTS)

    return read


def found(loaded: Loaded) -> list[tuple[str, int, int, str]]:
    return [(Path(each.file).name, each.line, each.column, each.code) for each in loaded.problems]


def names(loaded: Loaded) -> list[str]:
    return [service.name for service in loaded.require().services]


def test_services_of_all_files_in_the_order_of_their_names(read: Read) -> None:
    files = {
        "b.yaml": services("two"),
        "a.yaml": services("three", "four"),
        "a.yml": "nonsense",
        ".c.yaml": "x",
    }

    assert names(read(MAIN + services("one"), files)) == ["one", "three", "four", "two"]
    assert names(read(MAIN, files)) == ["three", "four", "two"], "the main file may have none"


def test_a_path_of_one_file_and_a_path_from_the_root(read: Read, tmp_path: Path) -> None:
    files = {"a.yaml": services("one"), "b.yaml": services("two")}

    assert names(read(MAIN.replace("*", "b"), files)) == ["two"]
    assert names(read(MAIN.replace("conf.d", f"{tmp_path}/conf.d"), files)) == ["one", "two"]
    assert names(read(MAIN.replace("*", "${WHICH}"), files, WHICH="a")) == ["one"]


def test_the_main_file_is_not_included_in_itself(read: Read, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text(services("two"))
    main = MAIN.replace("conf.d/*.yaml", '"*.yaml"') + services("one")

    assert names(read(main)) == ["one", "two"]


def test_a_name_that_two_files_have_is_told_with_both_positions(read: Read, tmp_path: Path) -> None:
    loaded = read(
        MAIN + services("one"), {"a.yaml": "# first\n" + services("two", "one"), "b.yaml": services("two")}
    )

    assert found(loaded) == [("a.yaml", 8, 3, "duplicate-key"), ("b.yaml", 2, 3, "duplicate-key")]
    folder = tmp_path / "conf.d"
    assert (
        loaded.render()
        == f"""\
{folder}/a.yaml:8:3: error[duplicate-key]: there is another service of the name 'one'
    8 |   one:
      |   ^^^
      = hint: the first one is in {tmp_path}/main.yaml:4:3
{folder}/b.yaml:2:3: error[duplicate-key]: there is another service of the name 'two'
    2 |   two:
      |   ^^^
      = hint: the first one is in {folder}/a.yaml:3:3"""
    )


@pytest.mark.parametrize(
    "content, problem",
    [
        (
            "services:\n  x: {dialect: plane, backends: []}\n",
            [(2, 16, "unknown-dialect"), (2, 33, "bad-value")],
        ),
        ("services:\n  x: {dialect: plain}\n", [(2, 3, "missing-key")]),
        ("services:\n  x: {dialect: plain, backends: [{weight: 1}]}\n", None),
        ("services: x\n", [(1, 11, "wrong-type")]),
        ("services:\n", [(1, 10, "wrong-type")]),
        ("listen: 127.0.0.1:1\n", [(1, 1, "unknown-key")]),
        ("include: more/*.yaml\n" + services("x"), [(1, 1, "unknown-key")]),
        ("state: x\n" + services("x"), [(1, 1, "unknown-key")]),
        ("", [(1, 1, "empty-file")]),
        ("# nothing yet\n", [(1, 1, "empty-file")]),
        ("{}\n", [(1, 1, "missing-key")]),
        ("- x\n", [(1, 1, "wrong-type")]),
        ("services: [\n", [(2, 1, "yaml-syntax")]),
        (services("x") + "  x: {}\n", [(6 + 1, 3, "duplicate-key")]),
        (services("x").replace("6385", "${PORT}"), [(6, 31, "not-allowed")]),
        (services("x").replace("/x", "/one"), [(4, 19, "duplicate-match")]),
        (b"services: \xff\n", [(1, 1, "not-utf-8")]),
    ],
)
def test_a_problem_of_an_included_file_is_at_its_place_in_it(
    read: Read, content: str | bytes, problem: list[tuple[int, int, str]] | None
) -> None:
    loaded = read(MAIN + services("one"), {"a.yaml": content})

    assert loaded.settings is None
    assert {each.file for each in loaded.problems} == {
        str(Path(loaded.filename).parent / "conf.d" / "a.yaml")
    }
    if problem is not None:
        assert found(loaded) == [("a.yaml", *each) for each in problem], loaded.render()


def test_a_message_about_two_files_names_the_other_one(read: Read, tmp_path: Path) -> None:
    (problem,) = read(MAIN + services("one"), {"a.yaml": services("x").replace("/x", "/one")}).problems

    assert f"'one' (line 6 of {tmp_path}/main.yaml) and" in problem.message


def test_the_problems_of_all_files_are_told_at_once(read: Read) -> None:
    loaded = read("listn: x\n" + MAIN, {"b.yaml": "x: 1\n", "a.yaml": "services:\n  y: {}\n"})

    assert [each[0] for each in found(loaded)] == ["", "a.yaml", "a.yaml", "b.yaml"]


def test_patterns_without_a_file(read: Read, tmp_path: Path) -> None:
    one = services("one")

    assert found(read(MAIN + one)) == [("", 2, 10, "no-effect")]
    assert names(read(MAIN + one)) == ["one"]
    assert found(read(MAIN)) == [("", 2, 10, "bad-value"), ("", 2, 10, "no-effect")]
    for pattern in ("conf.d/a.yaml", "nowhere/*.yaml", "nowhere/a.yaml"):
        assert found(read(MAIN.replace("conf.d/*.yaml", pattern) + one)) == [("", 2, 10, "unreadable")]
    for pattern in ("conf.d/", "..", "conf.d/**/x.yaml", '""', "[]", "{a: b}"):
        assert read(MAIN.replace("conf.d/*.yaml", pattern) + one).settings is None
    assert found(read(MAIN.replace("*", "${NOPE}") + one)) == [("", 2, 17, "unset-variable")]


def test_files_that_cannot_be_read_are_never_waited_for(read: Read, tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    os.mkfifo(tmp_path / "conf.d" / "a.yaml")
    (tmp_path / "conf.d" / "b.yaml").mkdir()
    (tmp_path / "conf.d" / "c.yaml").symlink_to("nowhere")

    assert found(read(MAIN)) == [(f"{name}.yaml", 1, 1, "unreadable") for name in "abc"]


def test_all_files_together_have_a_limit(read: Read, tmp_path: Path) -> None:
    half = "#" * (600 * 1024) + "\n"
    loaded = read(MAIN, {"a.yaml": half + services("one"), "b.yaml": half + services("two")})
    assert found(loaded) == [("b.yaml", 1, 1, "too-large")]

    for number in range(MAX_FILES + 1):
        (tmp_path / "conf.d" / f"{number}.yml").touch()
    assert found(read(MAIN.replace("yaml", "yml"))) == [("", 2, 10, "too-large")]


def test_secrets_of_an_included_file_are_hidden(read: Read) -> None:
    content = services("x") + "    headers: {request: {set: {X-Key: c4n4ry}}, ofer: 1}\n"
    loaded = read(MAIN, {"a.yaml": content})

    assert loaded.problems
    assert "c4n4ry" not in loaded.render() + repr(loaded)


def test_the_hash_is_of_all_files(read: Read) -> None:
    first = read(MAIN, {"a.yaml": services("one")}).require().hash
    same = read(MAIN, {"a.yaml": services("one")}).require().hash
    other = read(MAIN, {"a.yaml": services("one") + "# a comment\n"}).require().hash
    more = read(MAIN, {"a.yaml": services("one"), "b.yaml": services("two")}).require().hash

    assert first == same
    assert len({first, other, more}) == 3


# --- what included files may read --------------------------------------------------------------------------

LISTED = """\
listen: 127.0.0.1:8080
include:
  files: conf.d/*.yaml
  environment: [TEAM, OTHER]
  folders: [secrets, /nowhere]
"""


def with_body(value: str) -> str:
    return services("x") + f"    maintenance: {{body: '{value}'}}\n"


def body(loaded: Loaded) -> str | None:
    (service,) = loaded.require().services
    assert service.maintenance is not None
    return service.maintenance.body


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with the value of a team, beside the token of the gateway."""
    folder = tmp_path / "secrets"
    (folder / "deep").mkdir(parents=True)
    (folder / "team").write_text("of the team\n")
    (folder / "deep" / "team").write_text("deeper\n")
    (tmp_path / "token").write_text("c4n4ry\n")
    return folder


@pytest.mark.parametrize("main", [MAIN, "listen: 127.0.0.1:8080\ninclude: {files: conf.d/*.yaml}\n"])
@pytest.mark.parametrize(
    "value",
    ["${TOKEN}", "${TOKEN:-a default}", "${FILE:token}", "${FILE:secrets/team}", "${FILE:/nowhere}", "${NO}"],
)
def test_R3_T6_an_included_file_reads_nothing_by_default(
    read: Read, secrets: Path, main: str, value: str
) -> None:
    loaded = read(
        main + f"admin: {{token: '{'${TOKEN}'}'}}\n", {"a.yaml": with_body(value)}, TOKEN="c4n4ry" * 3
    )

    (problem,) = loaded.problems
    assert found(loaded) == [("a.yaml", 7, 26, "not-allowed")]
    key = "include.folders" if "FILE" in value else "include.environment"
    assert problem.hint is not None
    assert key in problem.hint
    assert "c4n4ry" not in loaded.render() + repr(loaded)


def test_R3_T6_what_is_listed_may_be_read(read: Read, secrets: Path) -> None:
    values = {
        "${TEAM}": "red",
        "a ${OTHER:-blue}": "a blue",
        "${FILE:secrets/team}": "of the team",
        f"${{FILE:{secrets}/deep/team}}": "deeper",
        "${FILE:secrets/deep/../team}": "of the team",
    }

    for value, text in values.items():
        assert body(read(LISTED, {"a.yaml": with_body(value)}, TEAM="red")) == text
    for value in ("${TOKEN}", "${TEAM}${TOKEN}", "${FILE:token}", "${FILE:secrets/../token}"):
        loaded = read(LISTED, {"a.yaml": with_body(value)}, TEAM="red", TOKEN="c4n4ry")
        assert [each[3] for each in found(loaded)] == ["not-allowed"], value


def test_R3_T6_links_are_resolved(read: Read, secrets: Path, tmp_path: Path) -> None:
    """As in a volume of Kubernetes, whose files are links within it, and as somebody makes them who wants to
    see the token."""
    (secrets / "..data").symlink_to("deep")
    (secrets / "inside").symlink_to("..data/team")
    (secrets / "outside").symlink_to(tmp_path / "token")
    (secrets / "up").symlink_to("..")
    (tmp_path / "other").symlink_to(secrets)
    (secrets / "self").symlink_to("self")
    (tmp_path / "secrets-of-others").mkdir()
    (tmp_path / "secrets-of-others" / "team").write_text("c4n4ry\n")

    def read_value(path: str, folder: str = "secrets") -> Loaded:
        main = LISTED.replace("secrets", folder)
        return read(main, {"a.yaml": with_body(f"${{FILE:{path}}}")})

    assert body(read_value("secrets/inside")) == "deeper"
    assert body(read_value("other/team")) == "of the team"
    assert body(read_value("secrets/team", "other")) == "of the team", "the folder may be a link itself"
    for path in ("secrets/outside", "secrets/up/token", "secrets-of-others/team"):
        assert [each[3] for each in found(read_value(path))] == ["not-allowed"], path
    for path in ("secrets", "secrets/..", "/", ".", "other"):
        assert [each[3] for each in found(read_value(path))] == ["not-allowed"], path
    for path in ("secrets/absent", "secrets/absent/x", "secrets/team/x", "secrets/self", "secrets/deep"):
        assert [each[3] for each in found(read_value(path))] == ["unreadable"], path


def test_R3_T6_the_main_file_reads_everything(read: Read, secrets: Path) -> None:
    main = LISTED + services("one") + "    maintenance: {body: '${FILE:token} ${TOKEN}'}\n"

    assert body(read(main, TOKEN="its own")) == "c4n4ry its own"


def test_R3_T6_a_value_of_an_included_file_is_watched_where_it_is_named(
    read: Read, secrets: Path, tmp_path: Path
) -> None:
    """Kubernetes changes values by another link to another folder."""
    (secrets / "..1").mkdir()
    (secrets / "..1" / "team").write_text("first")
    (secrets / "..2").mkdir()
    (secrets / "..2" / "team").write_text("second")
    (secrets / "..data").symlink_to("..1")
    (secrets / "linked").symlink_to("..data/team")
    loaded = read(LISTED, {"a.yaml": with_body("${FILE:secrets/linked}")})
    assert body(loaded) == "first"
    assert loaded.seen.again() == loaded.seen

    (secrets / "..data").unlink()
    (secrets / "..data").symlink_to("..2")

    assert loaded.seen.again() != loaded.seen


def test_R3_T6_a_refused_file_is_no_change_for_ever(read: Read, secrets: Path) -> None:
    loaded = read(LISTED, {"a.yaml": with_body("${FILE:token}")})

    assert loaded.settings is None
    assert loaded.seen.again() == loaded.seen


@pytest.mark.parametrize(
    "include, code",
    [
        ("{}", "missing-key"),
        ("{files: 1, environment: [A-B]}", "bad-value"),
        ("{files: '*.yml', environment: ['${A}']}", "unset-variable"),
        ("{files: '*.yml', environment: A}", "wrong-type"),
        ("{files: '*.yml', folders: a}", "wrong-type"),
        ("{files: '*.yml', folders: ['']}", "bad-value"),
        ("{files: 'a/'}", "bad-value"),
        ("{files: '*.yml', file: a}", "unknown-key"),
        ("['*.yml']", "wrong-type"),
    ],
)
def test_R3_T6_the_mapping_has_its_own_problems(read: Read, include: str, code: str) -> None:
    loaded = read(f"listen: 127.0.0.1:8080\ninclude: {include}\n" + services("one"))

    assert code in [each[3] for each in found(loaded)], loaded.render()
