"""What comes out of a channel is what went in: every dialect, every kind of setting, every fact."""

from __future__ import annotations

import pickle
import re
from dataclasses import FrozenInstanceError, dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_args

import pytest

from gateway.core.dialect import BackendResponse
from gateway.core.fleet.fleet import Fact
from gateway.core.fleet.probed_document import ProbedDocument
from gateway.core.fleet.publication import publication, published
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.request_ids import PLAIN_IDS, RequestIds
from gateway.core.versions.version import Version
from gateway.keys.secrets import MaskedText, Secret
from gateway.settings import Settings, load, read_file
from gateway.workers.channel import dumps, loads
from tests.core.builders import Toy, explained, service, upto
from tests.core.test_publication import described, described_service
from tests.dialects.dialect_samples import (
    DIALECT_SAMPLES,
    DialectSample,
    folded_headers,
    response_lines,
    targets_by_endpoint,
)

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = sorted((*ROOT.glob("config/*.yaml"), *ROOT.glob("config/examples/*.yaml")))
TOKEN: Final = "a-token-that-no-worker-needs"

every_sample = pytest.mark.parametrize("sample", DIALECT_SAMPLES, ids=lambda sample: sample.label)


def sent(value: Any) -> Any:
    return loads(dumps(value))


# --- dialects ----------------------------------------------------------------------------------------------


@every_sample
def test_a_dialect_is_the_same_in_another_process(sample: DialectSample) -> None:
    """Requests are decided alike, and whatever a response says is read and written alike."""
    made = type(sample.dialect).made(sample.options)
    here = sample._replace(dialect=made).snapshot(sample.offered)
    there = published(None, sent(publication(None, here)))
    other = there.views["toy"].service.dialect

    assert described(there) == described(here)
    for endpoint, (method, path) in targets_by_endpoint(made).items():
        assert other.endpoint(method, path, "") == endpoint
        for version in sample.versions:
            sends_version = endpoint.negotiated and not endpoint.answered
            lines = sample.request_field_lines(version, endpoint) if sends_version else ()
            ask = partial(explained, method=method, target=path or "/", headers=lines)
            assert ask(there) == ask(here)
            answer = folded_headers(response_lines(sample, endpoint, version, 200))
            served = made.read_response(endpoint, 200, answer)
            assert other.read_response(endpoint, 200, answer) == served
            response = BackendResponse(endpoint, 200, served, version, sample.offered)
            assert other.write_response(response) == made.write_response(response)


def test_a_dialect_that_nobody_has_configured_is_sent_as_it_is() -> None:
    toy = sent(Toy(vary=("X-Other",)))

    assert type(toy) is Toy
    assert toy.vary == ("X-Other",)


def test_a_dialect_may_hold_what_cannot_be_pickled() -> None:
    before = Unpicklable.made(Unpicklable.Options())

    after = sent((before, before))

    assert type(after[0]) is Unpicklable
    assert after[0] is after[1]
    assert after[0].read("1.5") == Version(1, 5)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        dumps(Unpicklable.configured(Unpicklable.Options()))


class Unpicklable(Toy):
    """One with a function of its own."""

    name = "unpicklable"

    def __init__(self) -> None:
        super().__init__()
        self.read = lambda text: self.scheme.require(text.strip())


def test_the_dialects_of_a_file_are_made_again() -> None:
    assert all(one.dialect.made_of is not None for one in everything().services)


@every_sample
def test_ids_of_requests_are_compared_as_before(sample: DialectSample) -> None:
    """The data plane asks whether they are the plain ones, and for nothing but that."""
    made = type(sample.dialect).made(sample.options)

    assert (sent(made).request_ids is PLAIN_IDS) is (made.request_ids is PLAIN_IDS)
    assert isinstance(sent(made).request_ids, RequestIds)


# --- settings ----------------------------------------------------------------------------------------------


def settings_without(settings: Settings) -> Settings:
    """Without the services, which are compared by what they are."""
    return replace(settings, services=())


def same_settings(one: Settings, other: Settings) -> None:
    assert settings_without(one) == settings_without(other)
    assert list(map(described_service, one.services)) == list(map(described_service, other.services))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_settings_of_an_example_come_out_as_they_went_in(path: Path) -> None:
    settings = read_file(path, environ={"SKEWGATE_ADMIN_TOKEN": TOKEN}).require().for_workers

    same_settings(sent(settings), settings)


EVERYTHING: Final = """
listen:
  - address: 127.0.0.1:8080
    proxy_protocol: on
  - {address: "unix:/run/skewgate.sock", mode: "0600"}
admin: {listen: "127.0.0.1:9900", token: "${TOKEN}"}
trusted_proxies: [10.0.0.0/8, "fd00::/8", "unix:"]
untrusted_headers: [X-User, X-Role-*]
timeouts: {client_head: 3s, backend_head: "off"}
limits: {head: 16KiB}
access_log: {format: text}
log: {level: warning}
services:
  api:
    dialect: ironic
    match: {host: [api.test, "*.api.test"], path: /baremetal}
    backends:
      - {url: "http://10.0.0.1:6385", name: one, weight: 3, max_requests: 7, queue: {length: 5, timeout: 2s}}
      - {url: "http://10.0.0.2:6385", name: two, backup: true, versions: 1.1-1.58}
      - {url: "unix:/run/ironic.sock", name: three}
      - {dns: "http://ironic.test:6385", leave_grace: 1m}
    offer: {policy: at_least, at_least: 50%, ceiling: "1.50", stabilization: 5s}
    releases: {our-build: "1.40"}
    default_version: "1.30"
    retry_after: true
    probe: {interval: 2s, headers: {X-Auth-Token: "${TOKEN}"}, health: {path: /health}}
    retry: {attempts: 2, on: [connect]}
    ejection: {failures: 3, on: [connect, server_error]}
    access: {allow: [10.0.0.0/8, "fd00::/8"], deny: [10.1.0.0/16]}
    client_limits: {rate: 5/s, burst: 10, concurrency: 3}
    headers:
      request: {set: {X-Gateway: skewgate}, add: {X-More: one}, remove: [X-Less]}
      response: {remove: [Server]}
    operations:
      - {methods: [GET, HEAD], path: "/v1/nodes/{id}/vifs", versions: ">=1.28"}
      - {methods: [POST], path: /v1/deploy, versions: next}
    upgrade: [websocket]
    timeouts: {tunnel_idle: "off"}
  calm:
    dialect: nova
    match: {path: /compute}
    backends: [{url: "http://10.0.0.3:8774"}]
    maintenance: {status: 503, retry_after: 60s}
"""


def everything() -> Settings:
    loaded = load(EVERYTHING, filename="x.yaml", environ={"TOKEN": TOKEN})
    assert not loaded.errors, loaded.render()
    return loaded.require()


def test_every_kind_of_setting_comes_out_as_it_went_in() -> None:
    settings = everything().for_workers
    after = sent(settings)

    same_settings(after, settings)
    one, other = settings.services[0], after.services[0]
    assert one.access is not None
    assert other.access is not None
    assert one.sources
    for address in ("10.0.0.1", "10.1.0.1", "192.0.2.1", "fd00::1", "::1"):
        assert other.access.allows(ip_address(address)) is one.access.allows(ip_address(address))
    assert other.access.else_allowed is False
    assert one.request_edits is not None
    assert other.request_edits is not None
    fields = b"\r\nX-Less: 1\r\nX-Gateway: me\r\nX: y"
    assert other.request_edits.edit(fields) == one.request_edits.edit(fields)
    found, expected = (each.operations.find("GET", "/v1/nodes/7/vifs") for each in (other, one))
    assert found == expected
    assert found is not None
    assert found.path.text == "/v1/nodes/{id}/vifs"


def test_the_token_of_the_admin_listener_reaches_no_worker() -> None:
    settings = everything()

    assert settings.admin.token == Secret(TOKEN)
    assert dumps(settings.for_workers).count(TOKEN.encode()) == 1, "only what probes are sent"
    with pytest.raises(TypeError, match="secret"):
        dumps(settings)


def test_a_masked_text_stays_one() -> None:
    [value] = sent(everything().for_workers).services[0].probe.headers.values()

    assert type(value) is MaskedText
    assert str(value) == TOKEN


# --- values ------------------------------------------------------------------------------------------------


def test_every_fact_can_be_sent() -> None:
    facts: list[Fact] = [
        kind(**{name: FACT_VALUES[name] for name in kind.__dataclass_fields__}) for kind in get_args(Fact)
    ]

    assert len(facts) == len(get_args(Fact))
    assert sent(facts) == facts


FACT_VALUES: Final = {
    "advertisement": upto(5),
    "at": 3.5,
    "prompted": True,
    "error": "no connection",
    "reason": "refused",
    "version": Version(1, 31),
    "path": "/v1/nodes",
    "document": ProbedDocument("/v1", "api-1", 200, (("Content-Type", "application/json"),), b"{}"),
}


@dataclass(frozen=True, slots=True)
class Derived:
    """With a field that follows from another one."""

    of: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.of)


@dataclass(frozen=True)
class ByName:
    """Its constructor takes no position."""

    of: int = field(kw_only=True)


@dataclass
class Open:
    """It is not frozen, so it may be other than its constructor would make it."""

    of: int


@dataclass(frozen=True)
class OwnWay:
    """It says itself how it is sent."""

    of: int

    def __reduce__(self) -> tuple[object, ...]:
        return OwnWay, (self.of + 1,)


def test_a_frozen_value_is_made_anew_by_its_constructor() -> None:
    value = sent(Derived(4))

    assert value.doubled == 8
    with pytest.raises(FrozenInstanceError):
        value.of = 1
    assert b"doubled" not in dumps(Derived(4))
    changed = Open(1)
    changed.of = 7
    assert sent(changed).of == 7
    assert sent(OwnWay(1)).of == 2
    with pytest.raises(TypeError, match="by name"):
        dumps(ByName(of=1))


def test_a_read_only_mapping_stays_one() -> None:
    value = sent({"inner": MappingProxyType({"a": (1, 2)})})["inner"]

    assert isinstance(value, MappingProxyType)
    assert value == {"a": (1, 2)}


def test_what_is_one_object_stays_one() -> None:
    one: Service = service("a")
    snapshot = Snapshot.configured([one], now=0.0)

    first, second, pattern = sent((one, snapshot.views["toy"].service, re.compile("a+")))

    assert first is second
    assert pattern.fullmatch("aaa")


def test_what_is_no_message_is_an_error() -> None:
    with pytest.raises(pickle.UnpicklingError):
        loads(b"\x80\x05nothing")
    with pytest.raises(EOFError):
        loads(b"")
