"""`${FILE:PATH}`: a value from a file, and every way in which that file cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.settings import Loaded, read_file
from tests.settings.dialects import DIALECTS
from tests.settings.texts import BASE

CANARY = "c4n4ry-in-the-mine"


def read(folder: Path, more: str, **environ: str) -> Loaded:
    (folder / "main.yaml").write_text(BASE + more)
    return read_file(folder / "main.yaml", environ=environ, dialects=DIALECTS)


def token(loaded: Loaded) -> str:
    found = loaded.require().admin.token
    assert found is not None
    return found.reveal()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_content_without_the_end_of_its_last_line_is_the_value(tmp_path: Path, end: str) -> None:
    (tmp_path / "token").write_bytes((CANARY + end).encode())

    assert token(read(tmp_path, f"admin: {{token: '${{FILE:{tmp_path}/token}}'}}\n")) == CANARY
    assert token(read(tmp_path, "admin:\n  token: ${FILE:token}\n")) == CANARY, "relative to the main file"
    assert token(read(tmp_path, "admin:\n  token: a${FILE:token}b${C}\n", C="c")) == f"a{CANARY}bc"


def test_a_value_may_have_several_lines_and_is_not_searched_for_variables(tmp_path: Path) -> None:
    (tmp_path / "body").write_text("first\n${NOPE} ${FILE:nope}\n")
    more = "    maintenance: {status: 503, body: '${FILE:body}'}\n"

    maintenance = read(tmp_path, more).require().services[0].maintenance

    assert maintenance is not None
    assert maintenance.body == "first\n${NOPE} ${FILE:nope}"


def test_a_variable_of_the_name_file_is_one(tmp_path: Path) -> None:
    loaded = read(tmp_path, "    default_version: ${FILE:-1.2}\n    retry: {attempts: '${FILE}'}\n", FILE="3")

    assert loaded.settings is None, "3 is no version"
    assert not read(tmp_path, "    default_version: ${FILE:-1.2}\n").problems


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    more = "admin: {token: '${FILE:token}'}\n"
    (tmp_path / "token").write_text(CANARY)
    first = read(tmp_path, more)
    (tmp_path / "token").write_text("another-" + CANARY)
    second = read(tmp_path, more)

    assert (token(first), token(second)) == (CANARY, "another-" + CANARY)
    assert first.require().hash == second.require().hash, "who sees it could try out values"
    assert first.seen != second.seen == first.seen.again()


def test_a_service_whose_value_has_changed_is_another_one(tmp_path: Path) -> None:
    more = "    headers: {request: {set: {X-Key: '${FILE:key}'}}}\n"
    (tmp_path / "key").write_text("one")
    before = read(tmp_path, more).require().services[0]
    (tmp_path / "key").write_text("two")
    after = read(tmp_path, more).require().services[0]

    assert before.written != after.written


@pytest.mark.parametrize(
    "content, code",
    [
        (None, "unreadable"),
        (b"", "empty-file"),
        (b"\n", "empty-file"),
        (b"\xff\xfe", "not-utf-8"),
        (b"x" * (65 * 1024), "too-large"),
        ("folder", "unreadable"),
        ("fifo", "unreadable"),
        ("link", "unreadable"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_at_the_reference(
    tmp_path: Path, content: bytes | str | None, code: str
) -> None:
    path = tmp_path / "token"
    match content:
        case bytes():
            path.write_bytes(content)
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to("nowhere")
        case _:
            pass

    loaded = read(tmp_path, "admin:\n  token: ${FILE:token}\n")

    (problem,) = loaded.problems
    assert (problem.line, problem.column, problem.width, problem.code) == (8, 10, 13, code)
    assert problem.message.startswith("'token': ")
    assert str(tmp_path / "token") in loaded.seen.files, "it is watched: its mending is a change"
    if code == "unreadable":
        assert str(problem.hint).endswith(f" reads it at {tmp_path}/token")


@pytest.mark.parametrize("text", ["${FILE:}", "${FILE:a", "${FILE:'}"])
def test_a_reference_that_is_none(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f'    default_version: "{text}"\n').settings is None


@pytest.mark.parametrize(
    "more", ["    default_version: {}\n", "timeouts: {{connect: {}}}\n", "workers: {}\n"]
)
def test_no_message_shows_the_content(tmp_path: Path, more: str) -> None:
    (tmp_path / "value").write_text(CANARY)

    loaded = read(tmp_path, more.format("'${FILE:value}'"))

    assert CANARY not in loaded.render() + repr(loaded)
    assert "the value comes from the file 'value'" in loaded.render() or "default_version" in more


def test_the_source_of_a_bad_value_is_told(tmp_path: Path) -> None:
    (tmp_path / "value").write_text(CANARY)
    (problem,) = read(tmp_path, "timeouts: {connect: '${A}${FILE:value}'}\n", A="1").problems

    assert problem.hint is not None
    assert problem.hint.endswith("the value comes from the environment: A and the file 'value'")


def test_a_default_is_not_for_a_secret(tmp_path: Path) -> None:
    (problem,) = read(tmp_path, "admin: {token: '${NOPE}'}\n").problems

    assert problem.hint is not None
    assert "a secret needs a file: ${FILE:/path}" in problem.hint
