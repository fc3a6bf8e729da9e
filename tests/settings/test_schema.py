"""The schema, the reference page and the files in config/ agree with the code."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
import yaml

from gateway.dialects import discover
from gateway.settings import load, read_file, schema_text
from gateway.settings.schema import Path, dotted_path, file_section, keys_of, schema_json
from tests.architecture.source import ROOT
from tests.docs.configuration_page import COMMAND, PAGE, page_as_it_should_be, reference_text
from tests.settings.dialects import DIALECTS
from tests.settings.schema_check import accepts

EXAMPLES = sorted(f"examples/{path.name}" for path in (ROOT / "config" / "examples").iterdir())
CONFIGS = ["minimal.yaml", "skewgate.yaml", *EXAMPLES]
SCHEMA = schema_json()
KEYS = dict(keys_of(file_section(DIALECTS)))
PACKAGED = dict(keys_of(file_section()))


def test_config_schema_json_is_what_schema_prints() -> None:
    written = (ROOT / "config" / "schema.json").read_text(encoding="utf-8")

    assert written == schema_text(), "run: ./run schema > config/schema.json"


def test_the_reference_page_is_what_the_schema_says() -> None:
    written = PAGE.read_text(encoding="utf-8")

    assert written == page_as_it_should_be(written), f"run: {COMMAND}"


@pytest.mark.parametrize("path", KEYS, ids=dotted_path)
def test_every_key_is_explained(path: Path) -> None:
    key = KEYS[path]

    assert key.meaning
    assert key.reason
    assert key.example is not None


def page_rows() -> dict[tuple[str, str], str]:
    """The rows of the tables on the reference page, by the heading above them and the key."""
    rows: dict[tuple[str, str], str] = {}
    heading = ""
    for line in reference_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip("`")
        elif line.startswith("| `"):
            rows[heading, line.split("`")[1]] = line
    return rows


def test_the_page_names_every_key_with_default_and_reason() -> None:
    rows = page_rows()

    for path, key in PACKAGED.items():
        row = rows[dotted_path(path[:-1]) or "Top level", path[-1]]
        assert f"| {key.reason} |" in row
        default = row.split(" | ")[1]
        if key.is_required:
            assert default == "required"
        elif key.default is None:
            assert default == "none"
        elif key.default in ({}, ()):
            assert default == "empty"
        else:
            written = key.default
            assert default == f"`{written if isinstance(written, str) else json.dumps(written)}`"


@pytest.mark.parametrize("name", CONFIGS)
def test_an_example_file_is_without_a_problem(name: str) -> None:
    loaded = read_file(ROOT / "config" / name, environ={})

    assert not loaded.problems, loaded.render()
    assert loaded.settings


@pytest.mark.parametrize("name", CONFIGS)
def test_the_schema_accepts_the_example_files(name: str) -> None:
    text = (ROOT / "config" / name).read_text(encoding="utf-8")

    assert accepts(SCHEMA, read_as_others_do(text))


def shown_keys(text: str) -> set[Path]:
    """The paths of all keys in a file, by their indentation. Keys after `# ` are included."""
    found: set[Path] = set()
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        key = re.match(r"( *(?:- )?)([a-z_]+):(?= |$)(.*)", re.sub("^( *)# ", r"\1", line))
        if key is None:
            continue
        indentation = len(key[1])
        above = [outer for outer in above if outer[0] < indentation] + [(indentation, key[2])]
        names = [name for _, name in above]
        path = tuple("*" if names[:at] == ["services"] else name for at, name in enumerate(names))
        inside = re.findall("[{,] ?([a-z_]+):", key[3])
        found |= {path, *((*path, name) for name in inside)}
    return found


def test_the_example_shows_every_key_and_its_default() -> None:
    """Each key is at its place, commented out or not."""
    text = (ROOT / "config" / "skewgate.yaml").read_text(encoding="utf-8")
    keys = {tuple(part for part in path if part != "[]") for path in PACKAGED}

    assert keys - {("listen", "address")} - shown_keys(text) == set()
    settings = read_file(ROOT / "config" / "skewgate.yaml", environ={}).require()
    minimal = read_file(ROOT / "config" / "minimal.yaml", environ={}).require()
    for part in (
        "listen",
        "admin",
        "workers",
        "agreement",
        "access_log",
        "metrics",
        "trusted_proxies",
        "state",
        "timeouts",
        "limits",
    ):
        assert getattr(settings, part) == getattr(minimal, part)
    for part in ("policy", "at_least", "stabilization", "ceiling", "default_version", "probe", "retry"):
        assert getattr(settings.services[0], part) == getattr(minimal.services[0], part)


OF_SOURCES: Final = ("dns", "srv", "file", "leave_grace", "networks")


def with_value(path: Path, value: object) -> dict[str, Any]:
    """A whole configuration with `value` at `path`."""
    dialect = path[2] if len(path) > 2 and path[2] in DIALECTS else "plain"
    service: dict[str, Any] = {
        "dialect": dialect,
        "backends": [{"url": "http://127.0.0.1:6385"}],
    }
    if path[2:3] == ("operations",):
        service["operations"] = [{"methods": ["GET"], "path": "/x", "versions": "1.1"}]
    whole: dict[str, Any] = {"listen": "127.0.0.1:8080", "services": {"api": service}}
    place: Any = whole
    for part, below in zip(path, [*path[1:], None], strict=True):
        name: Any = {"*": "api", "[]": 0}.get(part, part)
        if below is None:
            place[name] = value
        elif below == "[]":
            item = {"name": "first"} if name == "steps" else {}
            free_name = name if name not in place else name + "!"
            place = place[name] if isinstance(place.get(name), list) else place.setdefault(free_name, [item])
        else:
            place = place[name] if isinstance(name, int) else place.setdefault(name, {})
    if path[-1] == "burst":  # allowed with a rate only
        service["client_limits"]["rate"] = "100/s"
    if path[-1] == "backup":  # one that is none gives no warning
        service["backends"].append({"url": "http://127.0.0.1:2"})
    if "queue" in path:  # allowed with a bound only
        service["backends"][0]["max_requests"] = 8
    if path[-2:] == ("health", "status"):
        service["probe"]["health"]["path"] = "/healthcheck"
    if path[-1] == "at_least":  # allowed with the policy of that name only
        service["offer"]["policy"] = "at_least"
    if "listen!" in whole:
        whole["listen"] = whole.pop("listen!")
    if path[-2:-1] == ("[]",) and path[-1] in OF_SOURCES:  # instead of a URL
        place = {} if path[-1] in ("dns", "srv", "file") else {"dns": "http://a.example:1"}
        service["backends"] = [{**place, path[-1]: value}]
    _complete_skew(service)
    _complete_lifecycle(service.get("lifecycle", {}))
    _complete_names(whole, service)
    _complete_tls(whole, service["backends"][0] if service["backends"] else {})
    return _complete_clients(_complete_agreement(_complete_include(whole)))


def _complete_clients(whole: dict[str, Any]) -> dict[str, Any]:
    """A client has a name and a condition; and for that of a certificate, a listener asks for it."""
    if "clients" in whole:
        whole["clients"] = [{"name": "x", "user_agent": "y", **each} for each in whole["clients"]]
        if any("certificate" in each for each in whole["clients"]):
            whole["listen"] = [{"tls": {}}]
            _complete_tls(whole, {})
    return whole


def _complete_skew(service: dict[str, Any]) -> None:
    """A distance of releases needs their order."""
    if "skew" in service:
        service["releases"] = {"first": "1.1", "second": "1.2"}


def _complete_lifecycle(lifecycle: dict[str, Any]) -> None:
    """Each line needs a version and a day."""
    if {"brownouts", "unsafe"} & lifecycle.keys():
        lifecycle.setdefault("deprecated", {"since": "2026-01-15"})
        for entry in lifecycle.get("brownouts", ()):
            begins = {"weekly": "tue 10:00", "from": "2099-07-07"} if {"weekly", "from"} & {*entry} else {}
            entry |= {"for": "5m", **(begins or {"at": "2099-07-07T10:00Z"}), **entry}
    for name, line in lifecycle.items():
        if name not in {"deprecated", "sunset"}:
            continue
        line |= {"below": "1.46", {"deprecated": "since"}.get(name, "at"): "2099-06-30", **line}


def _complete_names(whole: dict[str, Any], service: dict[str, Any]) -> None:
    """An own pace is of named clients, and has a ceiling; a bridge has a match and a day."""
    offer, bridge = service.get("offer"), {"clients": ["a"], "match": "nearest", "until": "2099-06-30"}
    if isinstance(offer, dict) and "for" in offer:
        offer["for"] = [{"clients": ["a"], "ceiling": "1.72", **each} for each in offer["for"]]
    if "bridge" in service:
        service["bridge"] = [bridge | each for each in service["bridge"]]
    entries = (offer.get("for") if isinstance(offer, dict) else None) or service.get("bridge", [])
    names = [name for each in entries for name in each["clients"]]
    if names:
        whole["clients"] = [{"name": name, "user_agent": name} for name in names]


def _complete_include(whole: dict[str, Any]) -> dict[str, Any]:
    if isinstance(whole.get("include"), dict):
        whole["include"].setdefault("files", "conf.d/*.yaml")
    return whole


def _complete_agreement(whole: dict[str, Any]) -> dict[str, Any]:
    if "agreement" not in whole:
        return whole
    whole["state"] = "/var/lib/skewgate/state.json"
    whole["agreement"].setdefault("cluster", "site-1")
    etcd = whole["agreement"].setdefault("etcd", {})
    etcd.setdefault("endpoints", ["https://etcd-1", "https://etcd-2"])
    if "user" in etcd or "password" in etcd:
        etcd |= {"user": "skewgate", "password": "x", **etcd}
    if (tls := etcd.get("tls")) and ("certificate" in tls or "key" in tls):
        etcd["tls"] = {**PAIR, **tls}
    return whole


PAIR: Final = {"certificate": "/etc/skewgate/tls.crt", "key": "/etc/skewgate/tls.key"}


def _complete_tls(whole: dict[str, Any], backend: dict[str, Any]) -> None:
    """What a key of a listener or of TLS is allowed with only."""
    listener = whole["listen"][0] if isinstance(whole["listen"], list) and whole["listen"] else {}
    if listener:
        listener.setdefault("address", "unix:/run/x.sock" if "mode" in listener else "127.0.0.1:8080")
    if listener.get("proxy_protocol") == "on":
        whole["trusted_proxies"] = ["10.0.0.0/8"]
    for tls in (listener.get("tls"), whole.get("admin", {}).get("tls")):
        if tls is not None:
            pairs = tls.setdefault("certificates", [{}])
            pairs[:1] = [{**PAIR, **pair} for pair in pairs[:1]]
            tls.setdefault("client_ca", "/etc/skewgate/clients-ca.crt")
    if (tls := backend.get("tls")) is not None:
        backend["url"] = "https://api.example:6385"
        if "certificate" in tls or "key" in tls:
            backend["tls"] = {**PAIR, **tls}


def as_text(value: object) -> str:
    """As JSON, which is YAML. Texts have quotation marks, so that both readers see the same."""
    return json.dumps(value)


class OtherReader(yaml.SafeLoader):
    """A reader that gives plain values their types by YAML 1.2: `true` is a boolean, `on` is a word."""


OtherReader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if not tag.endswith(":bool")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
OtherReader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))


def read_as_others_do(text: str) -> object:
    return yaml.load(text, Loader=OtherReader)  # noqa: S506 - a SafeLoader, too


@pytest.mark.parametrize("path", KEYS, ids=dotted_path)
def test_every_example_is_accepted_by_the_schema_and_by_load(path: Path) -> None:
    """Of every key: its examples, and its default where it has one."""
    key = KEYS[path]
    schema = schema_json(DIALECTS)
    values = [key.example, *([] if key.is_required or key.default is None else [key.default])]

    for value in values:
        value = json.loads(json.dumps(value).replace('"ironic"', '"plain"'))
        text = as_text(with_value(path, value))
        loaded = load(
            text,
            filename="x",
            environ={"SKEWGATE_ADMIN_TOKEN": "x" * 16, "PROBE_TOKEN": "x", "SKEWGATE_ETCD_PASSWORD": "x"},
            dialects=DIALECTS,
            check_files=False,
        )
        assert {problem.code for problem in loaded.problems} <= {"not-verified"}, loaded.render()
        assert accepts(schema, json.loads(text)), text


@pytest.mark.parametrize(
    "path, value",
    [
        (("timeouts", "connect"), "5"),
        (("timeouts", "connect"), 5),
        (("limits", "body"), "5KB"),
        (("limits", "headers"), 3),
        (("limits", "connections"), "none"),
        (("workers",), 65),
        (("workers",), 0),
        (("workers",), "all"),
        (("access_log", "format"), "xml"),
        (("listen",), "8080"),
        (("listen",), {}),
        (("state",), "/var/lib/"),
        (("state",), ".."),
        (("services",), {}),
        (("services", "*", "backends"), []),
        (("services", "*", "dialect"), "chef"),
        (("services", "*", "match", "path"), "x"),
        (("services", "*", "offer", "policy"), "most"),
        (("services", "*", "offer", "at_least"), "101%"),
        (("services", "*", "offer", "at_least"), 0),
        (("services", "*", "offer", "stabilization"), "5"),
        (("services", "*", "offer", "ceiling"), {"version": "1.2"}),
        (("services", "*", "backends", "[]", "url"), "ftp://a"),
        (("listen", "[]", "mode"), "rw"),
        (("listen", "[]", "tls", "certificates"), []),
        (("listen", "[]", "proxy_protocol"), "v2"),
        (("services", "*", "dated"), {"shape": "round"}),
        (("services", "*", "operations"), [{"methods": ["GET"]}]),
        (("services", "*", "operations", "[]", "methods"), []),
        (("services", "*", "operations", "[]", "methods"), ["get"]),
        (("services", "*", "operations", "[]", "path"), "v1/x"),
        (("services", "*", "operations", "[]", "refusal"), 410),
        (("services", "*", "operations", "[]", "status"), "retired"),
    ],
)
def test_what_load_refuses_the_schema_refuses(path: Path, value: object) -> None:
    whole = with_value(path, value)

    assert load(as_text(whole), filename="x", environ={}, dialects=DIALECTS).errors
    assert not accepts(schema_json(DIALECTS), whole)


def test_an_unquoted_decimal_is_a_warning_here_and_refused_by_the_schema() -> None:
    text = as_text(with_value(("services", "*", "offer", "ceiling"), "1.90")).replace('"1.90"', "1.90")

    assert [problem.code for problem in load(text, filename="x", environ={}, dialects=DIALECTS).problems] == [
        "number"
    ]
    assert not accepts(schema_json(DIALECTS), read_as_others_do(text))


def test_every_dialect_has_a_place_for_its_options() -> None:
    paths = set(PACKAGED)

    assert {("services", "*", name) for name in discover()} <= paths
