"""Every way in which a file can be wrong, with code, line and column; and how problems are shown."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gateway
from gateway.settings import load, read_file
from gateway.settings.yaml.problem import CODES, Problem
from tests.settings.dialects import DIALECTS
from tests.settings.texts import BASE, load_text

Found = list[tuple[str, int, int]]


def found_in(text: str) -> Found:
    return [(problem.code, problem.line, problem.column) for problem in load_text(text).problems]


FORM: list[tuple[str, Found]] = [
    ("", [("empty-file", 1, 1)]),
    ("# nothing\n", [("empty-file", 1, 1)]),
    ("x", [("wrong-type", 1, 1)]),
    ("- x", [("wrong-type", 1, 1)]),
    ("a: [1", [("yaml-syntax", 1, 6)]),
    ("a: 'x\n", [("yaml-syntax", 2, 1)]),
    ("a:\n\tb: 1\n", [("yaml-syntax", 2, 1)]),
    ("a: b: c\n", [("yaml-syntax", 1, 5)]),
    ('a: "\\U00110000"', [("yaml-syntax", 1, 1)]),
    ("a: \x01\n", [("bad-character", 1, 4)]),
    ("a: 1\nb: \ufffe\n", [("bad-character", 2, 4)]),
    ("x" * (1024 * 1024 + 1), [("too-large", 1, 1)]),
    ("a: " + "[" * 40 + "]" * 40, [("too-deep", 1, 35)]),
    (BASE + "---\nx: 1\n", [("multiple-documents", 7, 1)]),
    (BASE + "listen: x\n", [("duplicate-key", 7, 1)]),
    (BASE + "workers: 1\nworkers: {a: [x, y]}\naccess_log: {}\n", [("duplicate-key", 8, 1)]),
    (BASE + "[a]: 1\n", [("bad-key", 7, 1)]),
    (BASE + "{a: 1}: {b: 2}\nworkers: 1\n", [("bad-key", 7, 1)]),
    (BASE + "workers: !!int 1\n", [("tag", 7, 10)]),
    (BASE + "workers: &one 1\n", [("alias", 7, 10)]),
    (BASE + "limits:\n  headers: &n 100\n  connections: *n\n", [("alias", 8, 12)]),
    (BASE + "    default_version: ${NOPE}\n", [("unset-variable", 7, 22)]),
    (BASE + "    default_version: '1.${NOPE}'\n", [("unset-variable", 7, 25)]),
    (
        BASE + "    match:\n      path: /a${A:-x}${NOPE}/${NO}\n",
        [("unset-variable", 8, 22), ("unset-variable", 8, 30)],
    ),
    (BASE + "    match:\n      path: /${1}\n", [("bad-variable", 8, 14)]),
    (BASE + '    match:\n      path: "\\ud800"\n', [("bad-character", 8, 13)]),
]

SHAPE: list[tuple[str, Found]] = [
    ("listen: 127.0.0.1:80\n", [("missing-key", 1, 1)]),
    ("workers: 1\n", [("missing-key", 1, 1), ("missing-key", 1, 1)]),
    ("listen: 127.0.0.1:80\nservices: {}\n", [("bad-value", 2, 11)]),
    (
        "listen: []\nservices:\n  a: {dialect: plain, backends: []}\n",
        [("bad-value", 1, 9), ("bad-value", 3, 33)],
    ),
    ("listen: 127.0.0.1:80\nservices:\n  a:\n    dialect: plain\n", [("missing-key", 3, 3)]),
    (BASE + "      - weight: 2\n", [("missing-key", 7, 9)]),
    (BASE.replace("url", "ulr"), [("unknown-key", 6, 9)]),
    (BASE.replace("url", "address"), [("missing-key", 6, 9), ("unknown-key", 6, 9)]),
    (BASE.replace("dialect", "dialekt") + "wokers: 1\n", [("unknown-key", 4, 5), ("unknown-key", 7, 1)]),
    (BASE + "        ulr: http://127.0.0.1:6386\n", [("unknown-key", 7, 9)]),
    (BASE + "wokers: 1\n", [("unknown-key", 7, 1)]),
    (BASE + "    ofer: {}\n", [("unknown-key", 7, 5)]),
    (BASE + "<text>: 1\n", [("unknown-key", 7, 1)]),
    (BASE + "    offer:\n      ceiling: {version: '1.2'}\n", [("missing-key", 8, 7), ("unknown-key", 8, 17)]),
    (BASE + "admin:\n", [("wrong-type", 7, 7)]),
    (BASE + "admin: x\n", [("wrong-type", 7, 8)]),
    (BASE + "admin: [x]\n", [("wrong-type", 7, 8)]),
    (BASE + "workers: [1]\n", [("wrong-type", 7, 10)]),
    (BASE + "trusted_proxies: 10.0.0.0/8\n", [("wrong-type", 7, 18)]),
    (BASE + "    default_version:\n", [("bad-value", 7, 21)]),
    (BASE + "  b: x\n", [("wrong-type", 7, 6)]),
    (BASE + "    backends: x\n".replace("backends", "retry"), [("wrong-type", 7, 12)]),
]

VALUES: list[tuple[str, str, Found]] = [
    # a key, values of it, and what is found for each of these values
    (
        "timeouts:\n  connect: {}\n",
        "5 5S 5.0s 0s -1s 1d 1H 25h 1_0s \u0665s 1441m 9999999999s",
        [("bad-value", 8, 12)],
    ),
    ("limits:\n  line: {}\n", "8192 8KB 8k 8.0KiB 1B 2MiB", [("bad-value", 8, 9)]),
    ("limits:\n  headers: {}\n", "x 007 1e3 7 10001 -1", [("bad-value", 8, 12)]),
    ("limits:\n  connections: {}\n", "0 none 1.5", [("bad-value", 8, 16)]),
    ("workers: {}\n", "x 1.0 0 65 -1 Auto all", [("bad-value", 7, 10)]),
    ("access_log: {{format: {}}}\n", "OFF xml", [("bad-value", 7, 22)]),
    ("state: {}\n", "/var/lib/ . .. a/..", [("bad-value", 7, 8)]),
    ("access_log:\n  path: {}\n", r'"a\nb"', [("bad-value", 8, 9)]),
    (
        "admin:\n  listen: {}\n",
        "9900 localhost :9900 '*:9900' ::1:9 1.2.3.4:70000 http://a:1",
        [("bad-value", 8, 11)],
    ),
    (
        "admin:\n  listen: {}\n",
        "1.2.3:80 256.1.1.1:80 '[fe80::1%eth0]:80' '[x]:80' a..b:80 ä:80 ':'",
        [("bad-value", 8, 11)],
    ),
    ("admin:\n  token: {}\n", r'"a\0" "a b" ä', [("bad-value", 8, 10)]),
    ("trusted_proxies:\n  - {}\n", "10.0.0.1/8 x 10.0.0.0/33", [("bad-value", 8, 5)]),
    ("    match:\n      path: {}\n", "v1 /v1/ //v1 /a/../b /a%20b /a?b '/a#b' '/ä'", [("bad-value", 8, 13)]),
    ("    match:\n      host: {}\n", "a:80 a/b '*' ::1 '[1.2.3.4]'", [("bad-value", 8, 13)]),
    ("    match:\n      strip_prefix: {}\n", "yes True 1 on", [("bad-value", 8, 21)]),
    ("        weight: {}\n", "0 1001 x", [("bad-value", 7, 17)]),
    ("        name: {}\n", "'a b' a/b ä", [("bad-value", 7, 15)]),
    ("        versions: '{}'\n", "1 1.9-1.2 1.2-2.3 1.02 latest 1.2-", [("bad-value", 7, 19)]),
    (
        "      - url: {}\n",
        "x ftp://a http:// http://u:p@a http://a:0 http://a/?b 'http://a/#b'",
        [("bad-value", 7, 14)],
    ),
    (
        "      - url: {}\n",
        "http://a//b http://a/../b http://a:b http://::1 http:///x http://a/%2e",
        [("bad-value", 7, 14)],
    ),
    ("    probe:\n      path: {}\n", "x /a?b", [("bad-value", 8, 13)]),
    ("    probe:\n      headers:\n        {}: x\n", "'a b' 'a:b' Content-Length", [("bad-value", 9, 9)]),
    (
        "    probe:\n      headers:\n        X: {}\n",
        r"'a ' \"a\nb\" ä".replace('\\"', '"'),
        [("bad-value", 9, 12)],
    ),
    ("    offer:\n      policy: {}\n", "all Guaranteed", [("bad-value", 8, 15)]),
    ("    offer:\n      ceiling: {}\n", "latest 1 old", [("bad-value", 8, 16)]),
    ("    default_version: {}\n", "latest 1 min", [("bad-value", 7, 22)]),
    ("    releases:\n      ours: {}\n", "latest 1", [("bad-value", 8, 13)]),
    ("    retry:\n      attempts: {}\n", "0 11", [("bad-value", 8, 17)]),
    ("    retry:\n      on:\n        - {}\n", "always", [("bad-value", 9, 11)]),
    (
        "  {}: {{}}\n",
        "'a b' a/b ä " + "x" * 65,
        [("bad-value", 7, 3), ("missing-key", 7, 3), ("missing-key", 7, 3)],
    ),
]

DATED = BASE.replace("plain", "dated")

MEANING: list[tuple[str, Found]] = [
    (BASE + "    timeouts: {client_head: 5s}\n", [("not-per-service", 7, 16)]),
    (BASE + "    headers: {request: {remove: [Host]}}\n", [("reserved-header", 7, 34)]),
    (BASE + "    offer: {policy: at_least}\n", [("contradiction", 7, 21)]),
    (BASE + "    offer: {at_least: 1}\n", [("contradiction", 7, 23)]),
    (
        BASE.replace("plain", "nosuch") + "    offer: {at_least: 1}\n",
        [("unknown-dialect", 4, 14), ("contradiction", 7, 23)],
    ),
    (BASE + "    offer: {policy: at_least, at_least: 2}\n", [("contradiction", 7, 41)]),
    (BASE + "    offer: {policy: at_least, at_least: 101%}\n", [("bad-value", 7, 41)]),
    (BASE + "    offer: {policy: at_least, at_least: 0}\n", [("bad-value", 7, 41)]),
    (BASE + "    offer: {policy: at_least, at_least: 100%, stabilization: 0s}\n", []),
    (BASE + "    offer: {stabilization: 5}\n", [("bad-value", 7, 28)]),
    (
        BASE + "    match: {path: /}\n  b:\n    dialect: plain\n    backends: [{url: 'http://a'}]\n",
        [("duplicate-match", 8, 3)],
    ),
    (
        BASE + "  b:\n    dialect: plain\n    match: {path: /}\n    backends: [{url: 'http://a'}]\n",
        [("duplicate-match", 9, 19)],
    ),
    (
        BASE + "  b:\n    dialect: plain\n    match: {path: x}\n    backends: [{url: 'http://a'}]\n",
        [("bad-value", 9, 19)],
    ),
    (BASE + "      - {url: 'http://a', name: '127.0.0.1:6385'}\n", [("duplicate-backend", 7, 33)]),
    (BASE + "      - url: http://127.0.0.1:6385/x\n", [("duplicate-backend", 7, 14)]),
    (BASE + "      - {url: 'http://127.0.0.1:6385', name: b}\n", [("duplicate-url", 7, 15)]),
    (BASE + "admin: {listen: '127.0.0.1:8080'}\n", [("address-taken", 7, 17)]),
    (BASE.replace("8080", "9900"), [("address-taken", 1, 9)]),
    (BASE.replace("127.0.0.1:8080", "0.0.0.0:9900"), [("address-taken", 1, 9)]),
    (BASE.replace("127.0.0.1:8080", "localhost:9900"), [("address-taken", 1, 9)]),
    (BASE.replace("127.0.0.1:8080", "'[::]:9900'"), []),
    (BASE.replace("127.0.0.1:8080", "127.0.0.2:9900"), []),
    (BASE.replace("127.0.0.1:8080", "127.0.0.1:0") + "admin: {listen: '127.0.0.1:0'}\n", []),
    (
        BASE.replace("127.0.0.1:8080", "[{address: '[::]:1'}, {address: '[::1]:1'}]"),
        [("address-taken", 1, 41)],
    ),
    (BASE + "admin: {listen: '0.0.0.0:9900'}\n", [("admin-exposed", 7, 17)]),
    (BASE + "admin: {listen: 'gateway.example:9900'}\n", [("admin-exposed", 7, 17)]),
    (BASE + "admin: {listen: '0.0.0.0:9900', token: 0123456789abcdef}\n", []),
    (BASE + "admin: {listen: '0.0.0.0:9900', token: 0123456789abcde}\n", [("bad-value", 7, 40)]),
    (BASE + "      - url: http://127.0.0.1:8080\n", [("own-address", 7, 14)]),
    (BASE + "      - url: http://localhost:9900\n", [("own-address", 7, 14)]),
    (BASE + "      - dns: http://api:80\n      - url: http://127.0.0.1:8080\n", [("own-address", 8, 14)]),
    (BASE + "      - url: http://127.0.0.2:8080\n", []),
    (
        BASE.replace("listen: 127.0.0.1", "listen: 0.0.0.0") + "      - url: http://127.0.0.2:8080/x\n",
        [("own-address", 7, 14)],
    ),
    (BASE.replace("listen: 127.0.0.1", "listen: 0.0.0.0") + "      - url: http://[::1]:8080/x\n", []),
    (
        BASE.replace("listen: 127.0.0.1", "listen: '[::]:8080' #") + "      - url: http://localhost:8080\n",
        [("own-address", 7, 14)],
    ),
    (
        BASE.replace("listen: 127.0.0.1:8080", "listen: unix:/run/x.sock")
        + "      - url: unix:/run//x.sock\n",
        [("own-address", 7, 14)],
    ),
    (BASE + "admin: {listen: '0.0.0.0:9900', token: []}\n", [("wrong-type", 7, 40)]),
    (BASE + "admin: {listen: '127.3.2.1:9900'}\n", []),
    (BASE + "limits: {line: 64KiB}\n", [("contradiction", 7, 16)]),
    (BASE + "limits: {body: 1KiB}\n", [("contradiction", 7, 16)]),
    (BASE + "limits: {line: 64KiB, head: x}\n", [("bad-value", 7, 29)]),
    (BASE + "trusted_proxies: [10.0.0.0/8, 0.0.0.0/0]\n", [("trusts-everyone", 7, 31)]),
    (BASE + "trusted_proxies: ['::ffff:0:0/96']\n", [("trusts-everyone", 7, 19)]),
    (BASE.replace("plain", "plane"), [("unknown-dialect", 4, 14)]),
    (BASE.replace("plain", "chef"), [("unknown-dialect", 4, 14)]),
    (BASE + "    dated: {days: true}\n", [("wrong-dialect", 7, 5)]),
    (BASE + "    plain: {days: true}\n", [("unknown-key", 7, 13)]),
    (DATED + "    dated: {day: true}\n", [("unknown-key", 7, 13)]),
    (DATED + "    dated: {days: yes}\n", [("bad-value", 7, 19)]),
    (DATED + "    dated: {shape: round}\n", [("bad-value", 7, 20)]),
    (DATED + "    dated: {title: impossible}\n", [("bad-value", 7, 12)]),
    (DATED + "    match: {path: /a}\n    dated: {title: /a/x}\n", [("repeated-prefix", 8, 20)]),
    (DATED + "    match: {path: /a}\n    dated: {title: /ab}\n", []),
    (DATED + "    offer: {ceiling: 1.2}\n", [("bad-value", 7, 22), ("number", 7, 22)]),
    (DATED + "    offer: {ceiling: 2024-02-30}\n", [("bad-value", 7, 22)]),
    (BASE + "    offer: {ceiling: {release: older}}\n", [("unknown-release", 7, 32)]),
    (BASE + "    releases: {old: '1.11'}\n", [("duplicate-release", 7, 21)]),
    (BASE + "    offer: {ceiling: 1.90}\n", [("number", 7, 22)]),
    (BASE + "    releases: {x: 1.1}\n", [("number", 7, 19)]),
    (BASE + "    offer: {floor: 1.90}\n", [("number", 7, 20)]),
    (BASE + "    offer: {floor: x}\n", [("bad-value", 7, 20)]),
    (BASE + "    offer: {floor: '1.5', ceiling: '1.4'}\n", [("contradiction", 7, 20)]),
    (BASE + "    offer: {floor: '1.4', ceiling: '1.4'}\n", []),
    (BASE + "        versions: 1.5-1.9\n    offer: {floor: '1.10'}\n", [("contradiction", 8, 20)]),
    (BASE + "        versions: 1.5-1.9\n    offer: {floor: '1.9'}\n", []),
    (BASE + "        versions: 1.5-1.9\n      - url: http://b\n    offer: {floor: '1.10'}\n", []),
    (BASE + "    offer: {floor: '1.6'}\n    default_version: '1.5'\n", [("contradiction", 8, 22)]),
    (BASE + "    offer: {floor: '1.6'}\n    default_version: '1.6'\n", []),
    (BASE + "    offer: {ceiling: '1.91'}\n    releases: {x: '1.90'}\n", [("no-effect", 7, 22)]),
    (BASE + "    offer: {ceiling: '1.90'}\n    releases: {x: '1.90'}\n", []),
    (BASE + "    offer: {ceiling: {release: 2024.1}}\n    releases: {2024.1: '1.90'}\n", []),
    (BASE + "        versions: 1.1\n", [("number", 7, 19)]),
    (BASE + "    offer: {ceiling: '1.4'}\n    default_version: '1.5'\n", [("contradiction", 8, 22)]),
    (BASE + "        versions: 1.5-1.9\n    offer: {ceiling: '1.4'}\n", [("ceiling-below-minimum", 8, 22)]),
    (BASE + "        versions: 1.5-1.9\n    offer: {ceiling: '1.5'}\n", []),
    (
        BASE + "        versions: 1.5-1.9\n      - url: http://b\n    offer: {ceiling: '1.4'}\n",
        [("ceiling-below-minimum", 9, 22)],
    ),
    (
        # The other backend may serve less, and then that is offered.
        BASE
        + "        versions: 1.5-1.9\n      - url: http://b\n"
        + "    offer: {policy: reachable, ceiling: '1.4'}\n",
        [],
    ),
]

IRONIC = BASE.replace("plain", "ironic")
ALL = FORM + SHAPE + MEANING


@pytest.mark.parametrize("text, found", ALL)
def test_what_is_found(text: str, found: Found) -> None:
    assert found_in(text) == found, load_text(text).render()


def split_values(values: str) -> list[str]:
    """The words of `values`. A quoted one may contain blanks."""
    words: list[str] = []
    for word in values.split(" "):
        if words and words[-1][0] in "'\"" and (len(words[-1]) == 1 or words[-1][-1] != words[-1][0]):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


@pytest.mark.parametrize(
    "more, value, found",
    [(more, value, found) for more, values, found in VALUES for value in split_values(values)],
)
def test_a_bad_value(more: str, value: str, found: Found) -> None:
    if more.startswith("        versions: '"):
        value = value.strip("'")

    text = BASE + more.format(value)

    assert found_in(text) == found, load_text(text).render()


def test_everything_at_once() -> None:
    """A problem at one place hides no problem at another place."""
    assert found_in("""\
lisen: 127.0.0.1:80
workers: two
services:
  a:
    dialect: plain
    backends:
      - {url: "http://a", versions: "9"}
      - {url: nonsense}
      - {url: "http://a"}
    match: {path: a}
    default_version: x
    offer: {ceiling: {release: x}, stabilization: 1}
  b:
    dialect: chef
    backends: []
    probe: {interval: 1}
""") == [
        ("unknown-key", 1, 1),
        ("bad-value", 2, 10),
        ("bad-value", 7, 37),
        ("bad-value", 8, 15),
        ("duplicate-backend", 9, 15),
        ("bad-value", 10, 19),
        ("bad-value", 11, 22),
        ("unknown-release", 12, 32),
        ("bad-value", 12, 51),
        ("unknown-dialect", 14, 14),
        ("bad-value", 15, 15),
        ("bad-value", 16, 23),
    ]


def test_a_missing_certificate_hides_no_other_problem() -> None:
    """A filler that was refused itself was put in again until the reader gave up."""
    text = (
        "listen:\n  - address: 127.0.0.1:80\n    tls: {}\n"
        "services:\n  api:\n    dialect: nothing\n    backends: [{url: 'http://x:1'}]\n"
    )

    assert found_in(text) == [("missing-key", 3, 5), ("unknown-dialect", 6, 14)]


def test_a_bad_name_hides_no_other_problem() -> None:
    """With a second problem below the bad name, all services were taken away."""
    text = (
        "listen: 127.0.0.1:80\nservices:\n  a b:\n    dialect: plain\n    backends: [{url: x}]\n"
        "  api:\n    dialect: nothing\n    backends: [{url: 'http://x:1'}]\n"
    )

    assert found_in(text) == [("bad-value", 3, 3), ("bad-value", 5, 22), ("unknown-dialect", 7, 14)]


def test_bad_names_hide_nothing_of_each_other() -> None:
    text = (
        "listen: 127.0.0.1:80\nservices:\n  a b: {dialect: plain, backends: x}\n"
        "  '': {dialect: nothing, backends: [{url: 'http://a'}]}\n"
    )

    assert found_in(text) == [
        *(("bad-value", 3, 3), ("wrong-type", 3, 35), ("bad-value", 4, 3), ("unknown-dialect", 4, 17)),
    ]


def test_every_code_is_explained_and_tried() -> None:
    tried = {code for _, found in ALL for code, _, _ in found} | {found[0][0] for _, _, found in VALUES}

    of_files = {"not-utf-8", "unreadable", "bad-certificate", "bad-targets", "expires-soon", "not-verified"}
    of_files |= {"not-writable", "needs-restart", "too-many-workers", "untrusted"}
    of_files |= {"not-allowed"}  # tests/settings/test_include.py
    of_files |= {"sent-in-clear"}  # tests/settings/test_backend_sources.py
    of_files |= {"divided"}  # tests/settings/test_shares.py
    of_files |= {"engine"}  # tests/cli/test_check_engine.py
    of_files |= {"misleading"}  # tests/cli/test_check.py
    of_files |= {"sunset-passed"}  # tests/settings/test_lifecycle.py
    of_files |= {"ends-soon"}  # tests/settings/test_bridge.py
    of_files |= {"passed"}  # tests/settings/test_pace.py
    of_files |= {"brownout"}  # tests/settings/test_brownouts.py
    of_files |= {"never-matches"}  # tests/settings/test_clients.py
    of_files |= {"no-state", "one-endpoint", "password-exposed", "short-forget"}  # test_agreement.py
    assert tried | of_files == CODES.keys()


def test_no_other_code_is_reported() -> None:
    reported: set[str] = set()
    for file in Path(gateway.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            match node:
                case ast.Call(ast.Attribute(attr="add" | "warn"), [_, ast.Constant(str(text)), _, *_]):
                    reported |= set() if " " in text else {text}  # with one it is a message
                case _:
                    pass

    assert "no-effect" in reported
    assert reported <= CODES.keys()


def test_a_problem_as_people_see_it() -> None:
    loaded = load_text(BASE + "    ofer: {}\n    offer: {ceiling: 1.90}\nworkers: 'x'\n")

    assert (
        loaded.render()
        == """\
x.yaml:7:5: error[unknown-key]: there is no key 'ofer' here
    7 |     ofer: {}
      |     ^^^^
      = hint: did you mean `offer`?
x.yaml:8:22: warning[number]: other tools read 1.90 as the number 1.9
    8 |     offer: {ceiling: 1.90}
      |                      ^^^^
      = hint: write "1.90"
x.yaml:9:10: error[bad-value]: not a whole number
    9 | workers: 'x'
      |          ^^^
      = hint: write digits only"""
    )


def test_a_caret_behind_a_tab_stands_under_its_token() -> None:
    problem = Problem(1, 4, "bad-value", "no", width=9)

    assert problem.render("x", ["a:\tb"]).splitlines()[1:] == ["    1 | a:\tb", "      |   \t^"]


@pytest.mark.parametrize(
    "more, hint",
    [
        ("interval: 5s\n", "`interval` belongs under `services.NAME.probe`"),
        (
            "tls: {certificates: []}\n",
            (
                "`tls` belongs under `listen[]` or `admin` or `services.NAME.backends[]`; "
                "`listen` is a list then, of {address: HOST:PORT, tls: ...}"
            ),
        ),
        ("    match: {pth: /}\n", "did you mean `path`?"),
        ("    match: {zzz: /}\n", "known keys: host, path, strip_prefix"),
        (
            "    match:\n      path: /${A:-b?}\n",
            "paths are compared as clients send them; the value comes from the environment: A",
        ),
        (
            "    default_version: ${NOPE}\n",
            "set it, or give a default: ${NOPE:-...}; a secret needs a file: ${FILE:/path}",
        ),
        ("    match: {path: /${NOPE}}\n", 'inside [ ] and { } a variable needs quotation marks: "${NAME}"'),
        ("trusted_proxies: [10.0.0.1/8]\n", "did you mean 10.0.0.0/8?"),
        ("    dated: {}\n", "remove them, or write them under `plain`"),
        ("    retry: {on: [conect]}\n", "did you mean connect?"),
        ("access_log: {format: OFF}\n", "did you mean off?"),
        ("    default_version: >=1.5\n", 'a text that starts with > or | needs quotation marks: ">=1.58"'),
        ("    offer: {ceiling: {release: 2024.2}}\n", "did you mean 2024.1?"),
        ("    match: /x\n", "write its keys in braces: {host: ..., path: ..., strip_prefix: ...}"),
        ("limits: many\n", "write its keys below it: see docs/configuration.md"),
        (
            "x: {y: $.a[*]}\n",
            'inside [ ] and { } a text with a bracket in it needs quotation marks: "$.a[*]"',
        ),
        ("x: [a, b[*]]\n", 'inside [ ] and { } a text with a bracket in it needs quotation marks: "$.a[*]"'),
        ("listen: x\n", "the first one is in line 1"),
        ("    default_version: 'x\n", "a quotation mark is not closed; it began in line 7"),
    ],
)
def test_hints(more: str, hint: str) -> None:
    assert hint in [problem.hint for problem in load_text(BASE + more).problems]


def test_a_backend_that_is_a_bare_address_is_one_problem_that_says_how_to_write_it() -> None:
    text = "listen: 127.0.0.1:80\nservices:\n  a: {dialect: plain, backends: ['http://a:1']}\n"

    [problem] = load_text(text).problems

    assert (problem.code, problem.hint) == ("wrong-type", "write {url: 'http://a:1'}")


def test_the_hint_for_an_unknown_dialect_names_the_known_ones() -> None:
    [problem] = load_text(BASE.replace("plain", "chef")).problems

    assert problem.hint == "known dialects: dated, plain"


def test_a_terminal_gets_no_control_characters() -> None:
    shown = load_text('"\\e[31m\\u202e": 1\n# \u202e\nlisten: \u202ex\n').render()

    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_lines_end_as_in_yaml() -> None:
    assert found_in("a: 1\r\nb: 1\rc: 1\n")[0:1] == [("missing-key", 1, 1)]
    assert ("unknown-key", 3, 1) in found_in("a: 1\r\nb: 1\rc: 1\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"listen: x\n# \xe4\n")

    [gone] = read_file(tmp_path / "gone.yaml", environ={}).problems
    [folder] = read_file(tmp_path, environ={}).problems
    [coded] = read_file(latin, environ={}).problems
    [impossible] = read_file("a\0b", environ={}).problems
    [endless] = read_file("/dev/zero", environ={}).problems

    assert {gone.code, folder.code, impossible.code} == {"unreadable"}
    assert endless.code == "too-large"
    assert gone.message == "the file cannot be read: No such file or directory"
    assert (coded.code, coded.line, coded.column) == ("not-utf-8", 2, 3)


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + BASE.encode())

    assert read_file(file, environ={}, dialects=DIALECTS).settings


@pytest.mark.parametrize(
    "item", ["X_Real_IP", "'*'", "'X-*-For'", "'X-Real-IP:'", "'X-**'", "-a", "ä", "''", "a" * 64]
)
def test_R_B10_a_header_to_drop_is_a_name_or_the_beginning_of_names(item: str) -> None:
    [problem] = load_text(BASE + f"untrusted_headers: [X-A, {item}]\n").problems

    assert (problem.code, problem.line, problem.column) == ("bad-value", 7, 26)
    if item != "''":
        assert problem.hint == "write X-Real-IP, which includes X_Real_IP, or X-Forwarded-*"


@pytest.mark.parametrize(
    "header, hint",
    [
        *(
            (name, "remove it from the list")
            for name in ("Host", "content-length", "Transfer-Encoding", "TE")
        ),
        *(
            (name, "remove it from the list")
            for name in ("Connection", "Via", "Expect", "Proxy-Authorization")
        ),
        ("H*", "name the headers one by one"),
        ("Content-*", "name the headers one by one"),
    ],
)
def test_R_B10_headers_of_the_message_itself_cannot_be_dropped(header: str, hint: str) -> None:
    [problem] = load_text(BASE + f"untrusted_headers:\n  - X-A\n  - {header}\n").problems

    assert (problem.code, problem.line, problem.column) == ("contradiction", 9, 5)
    assert problem.hint == hint


@pytest.mark.parametrize(
    "dialect, header, read",
    [
        ("ironic", "X-OpenStack-Ironic-API-Version", "x-openstack-ironic-api-version"),
        ("ironic", "OpenStack-*", "openstack-api-version"),
        ("ironic", "X-OpenStack-Request-Id", "x-openstack-request-id"),
        ("chef", "X-Ops-Server-API-*", "x-ops-server-api-version"),
    ],
)
def test_R_B10_headers_that_a_dialect_reads_cannot_be_dropped(dialect: str, header: str, read: str) -> None:
    text = BASE.replace("plain", dialect) + f"untrusted_headers: [X-Forwarded-*, {header}]\n"
    [problem] = load(text, filename="x.yaml", environ={}).problems

    assert (problem.code, problem.line, problem.column) == ("contradiction", 7, 36)
    assert problem.message == f"service 'api' reads the header {read!r}, which this would drop"


def test_R_B10_a_dialect_may_read_a_header_of_the_default_list() -> None:
    """A list that the file does not have is no contradiction: the header is read, as without the list."""
    text = (
        "listen: 127.0.0.1:80\nservices:\n  api:\n    dialect: custom\n"
        "    custom: {places: [{header: X-Original-Version}], scheme: integer}\n"
        "    backends: [{url: 'http://127.0.0.1:1', versions: 1-9}]\n"
    )

    assert load(text, filename="x.yaml", environ={}).problems == ()
    listed = load(text + "untrusted_headers: [X-Original-*]\n", filename="x.yaml", environ={})
    assert [(one.code, one.line) for one in listed.problems] == [("contradiction", 7)]
