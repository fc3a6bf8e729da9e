"""What `check` says about the mistakes of a first file: what is wrong, where, and what to write instead."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from gateway.settings import Loaded, load, read_file
from gateway.settings.yaml.problem import Problem

HEAD = "listen: 127.0.0.1:8080\nservices:\n"
USER = pwd.getpwuid(os.geteuid()).pw_name


def loaded(text: str, **environ: str) -> Loaded:
    return load(text, filename="x.yaml", environ=environ)


def only(text: str, **environ: str) -> Problem:
    """The one problem of a file."""
    found = loaded(text, **environ)
    assert len(found.problems) == 1, found.render()
    return found.problems[0]


def custom(options: str = "{}", backend: str = "") -> str:
    return f"""{HEAD}  api:
    dialect: custom
    custom: {options}
    backends: [{{url: "http://a:1"{backend}}}]
"""


def ironic(backend: str = "") -> str:
    return f'{HEAD}  api:\n    dialect: ironic\n    backends: [{{url: "http://a:1"{backend}}}]\n'


@pytest.mark.parametrize(
    "scheme, versions, message, hint",
    [
        ("integer", "2024-01-01", "2024-01-01 is a date", "set `scheme: date`, or write `1-3`"),
        ("integer", "2024-01", "2024-01 is a date", "set `scheme: date`, or write `1-3`"),
        ("integer", "1.1-1.90", "1.1 is a version X.Y", "set `scheme: major.minor`, or write `1-3`"),
        ("major.minor", "1.4.2", "1.4.2 is a version X.Y.Z", "set `scheme: semver`, or write `1.1-1.31`"),
        ("date", "1-3", "1 is a whole number", "set `scheme: integer`, or write `2024-01-31`"),
        ("integer", "v3", "'v3' is not a version of the form 3", "write `1-3`"),
    ],
)
def test_versions_of_another_scheme(scheme: str, versions: str, message: str, hint: str) -> None:
    problem = only(custom(f"{{scheme: {scheme}}}", f', versions: "{versions}"'))

    assert (problem.message, problem.hint) == (message, hint)


def test_no_scheme_can_be_set_where_the_dialect_has_one() -> None:
    problem = only(ironic(', versions: "2024-01-01"'))

    assert (problem.message, problem.hint) == ("2024-01-01 is a date", "write `1.1-1.31`")


def test_versions_from_the_environment_are_not_quoted() -> None:
    problem = only(custom(backend=', versions: "${V}"'), V="2024-01-01")

    assert "2024" not in f"{problem.message} {problem.hint}"


def test_a_custom_dialect_without_versions() -> None:
    problem = only(custom())

    assert problem.message == "nothing says which versions this backend serves"
    assert problem.hint == 'add `versions: "1-3"`, or `custom.learn: {path: /versions, ...}`'


def test_two_services_without_a_match() -> None:
    body = "\n    dialect: ironic\n    backends: [{url: 'http://a:1'}]\n"
    problem = only(f"{HEAD}  a:{body}  b:{body}")

    assert problem.message == "services 'a' (line 3) and 'b' match the same requests"


def test_services_as_a_list() -> None:
    problem = only(HEAD + "  - dialect: ironic\n")

    assert problem.message == "a mapping is expected here, not a list"
    assert problem.hint == "write `services: {NAME: {...}}`"


@pytest.mark.parametrize("backends", ["", "    backends: []\n"])
def test_a_service_without_backends(backends: str) -> None:
    problem = only(f"{HEAD}  a:\n    dialect: ironic\n{backends}")

    assert problem.hint == "add `backends: [{url: http://HOST:PORT}]`"


def test_versions_as_a_list() -> None:
    problem = only(custom("{scheme: major.minor}", ', versions: ["1.1", "1.2"]'))

    assert problem.message == "a text is expected here, not a list"
    assert problem.hint == 'write "1.1, 1.2"'


def test_another_text_as_a_list() -> None:
    assert only(ironic() + "workers: [2]\n").hint == "write it without brackets"


def test_a_list_of_versions_from_the_environment_is_not_quoted() -> None:
    problem = only(custom(backend=', versions: ["${V}"]'), V="secret")

    assert problem.hint == "write it without brackets"


def test_tabs() -> None:
    assert only(HEAD + "\ta:\n\t\tdialect: ironic\n").hint == "indent with spaces, not tabs"


def test_a_character_that_needs_quotation_marks() -> None:
    assert only("listen: @a\n").hint == "a text that starts with @, ` or % needs quotation marks"


@pytest.mark.parametrize(
    "written, meant",
    [
        ("10M", "10MiB"),
        ("10MB", "10MiB"),
        ("10 KiB", "10KiB"),
        ("8k", "8KiB"),
        ("1g", "1GiB"),
        ("512", "512B"),
    ],
)
def test_a_size_in_another_form(written: str, meant: str) -> None:
    assert only(f"{ironic()}limits: {{body: {written}}}\n").hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize(
    "written, meant", [("5", "5s"), ("5sec", "5s"), ("2 min", "2m"), ("100 ms", "100ms"), ("1H", "1h")]
)
def test_a_duration_in_another_form(written: str, meant: str) -> None:
    assert only(f"{ironic()}timeouts: {{connect: {written}}}\n").hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize("written", ["ten", "1.5MiB", "1TB", "'10\u0665MB'"])
def test_a_size_that_cannot_be_guessed(written: str) -> None:
    assert "write a whole number and its unit" in str(only(f"{ironic()}limits: {{body: {written}}}\n").hint)


def test_a_size_from_the_environment_is_not_quoted() -> None:
    problem = only(ironic() + 'limits: {body: "${SIZE}"}\n', SIZE="10M")

    assert "10M" not in str(problem.hint)


@pytest.mark.parametrize(
    "place, meant",
    [
        ("path: /v1", "/v{version}"),
        ("path: /admin/api/2024-01", "/admin/api/{version}"),
        ("path: /v1/items", "/v{version}"),
        ("header: X, spelling: v1", "v{version}"),
    ],
)
def test_a_place_with_a_version_for_a_placeholder(place: str, meant: str) -> None:
    problem = only(custom(f"{{places: [{{{place}}}]}}", ", versions: 1-3"))

    assert problem.hint == f"did you mean `{meant}`?"


def test_a_place_from_the_environment_is_not_quoted() -> None:
    problem = only(custom('{places: [{path: "${P}"}]}', ", versions: 1-3"), P="/v1")

    assert "/v" not in str(problem.hint)


def test_a_weight_of_nothing() -> None:
    problem = only(ironic(", weight: 0"))

    assert problem.message == "the number must be from 1 to 1000"
    assert problem.hint == "to take a backend out, `skewgate drain SERVICE/BACKEND`"


MISSING = [
    (
        HEAD.replace("127.0.0.1:8080", "[{address: '127.0.0.1:1', tls: {certificates: [PAIR]}}]").replace(
            "PAIR", "{certificate: a, key: a}"
        )
        + "  api:\n    dialect: ironic\n    backends: [{url: 'http://a:1'}]\n",
        "error[bad-certificate]: the file cannot be read: No such file or directory",
    ),
    (
        ironic(", tls: {ca: a}").replace("http:", "https:"),
        "error[bad-certificate]: the file cannot be read: No such file or directory",
    ),
    (
        ironic() + "admin: {token: '${FILE:a}'}\n",
        "error[unreadable]: 'a': the file cannot be read: No such file or directory",
    ),
    (ironic() + "include: a\n", "error[unreadable]: there is no such file"),
]


@pytest.mark.parametrize("text, headline", MISSING)
def test_a_file_that_is_missing(tmp_path: Path, text: str, headline: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)

    found = read_file(file, environ={})

    assert len(found.problems) == 1, found.render()
    assert headline in found.render()
    assert found.problems[0].hint == f"user {USER} reads it at {tmp_path}/a"


def test_a_missing_file_of_backends(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(ironic().replace('url: "http://a:1"', "file: a"))

    problem = read_file(file, environ={}).problems[0]

    assert problem.message == "no backends from this file: it cannot be read: no such file or directory"
    assert str(problem.hint).startswith(f"user {USER} reads it at {tmp_path}/a")


def test_a_path_from_the_environment_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(ironic(', tls: {ca: "${CA}"}').replace("http:", "https:"))

    assert "hidden" not in read_file(file, environ={"CA": "/hidden/ca.crt"}).render()


def test_anchors() -> None:
    problem = only(
        "listen: 127.0.0.1:8080\nx-common: &c\n  dialect: ironic\nservices:\n"
        "  a:\n    <<: *c\n    backends: [{url: 'http://a:1'}]\n"
        "  b:\n    <<: *c\n    backends: [{url: 'http://a:2'}]\n    match: {path: /b}\n"
    )

    assert (problem.line, problem.message) == (2, "anchors and aliases are not supported")
    assert problem.hint == (
        "write the value where it is needed, or as ${VARIABLE}; `include` reads services from further files"
    )
