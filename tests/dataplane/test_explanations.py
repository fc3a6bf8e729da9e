"""What explain() says about a request is what the gateway does with it."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from gateway.core.fleet.fleet import Drain
from gateway.core.http.message import Header
from gateway.errors import FramingError
from tests.core.builders import explained, explained_json
from tests.kit.backends import ScriptedBackend
from tests.kit.messages import HOST, STANDARD_FIELD, VERSION_FIELD, Message
from tests.kit.workers import Gateway, Testbed

REQUESTS: Final = 1000
METHODS: Final = ("GET", "GET", "GET", "HEAD", "OPTIONS", "DELETE", "TRACE")
PATHS: Final = (
    *("/", "/v1", "/v1/", "/v1/nodes", "/v1/nodes?fields=uuid", "/v1.json", "//v1/nodes", "/v1/%6eodes"),
    *("/v1/nodes/../x", "/v1/%2e%2e/x", "/v1/a%2fb", "/v1/%ff", "/v2/x"),
)
VERSIONS: Final = (
    "1.1",
    "1.31",
    "1.58",
    "1.59",
    "1.90",
    "1.91",
    "0.9",
    "2.0",
    "latest",
    "",
    "x",
    "1.05",
    "+1.5",
)
NAMES: Final = (
    *(VERSION_FIELD, VERSION_FIELD.lower(), VERSION_FIELD.replace("-", "_"), VERSION_FIELD.replace("-", ".")),
    *(STANDARD_FIELD, STANDARD_FIELD.upper(), STANDARD_FIELD.replace("-", "_"), "X-Other"),
)
OTHER_LINES: Final[tuple[Header, ...]] = (
    ("Connection", "keep-alive"),
    ("Connection", VERSION_FIELD),
    ("Connection", "x-other"),
    ("Content-Length", "0"),
    ("Content-Length", "-1"),
    ("Transfer-Encoding", "gzip"),
    ("Host", "other.example"),
    ("Expect", "something"),
    ("Accept", "application/json"),
)


def generated(rng: random.Random) -> tuple[str, str, list[Header]]:
    """Method, target and header lines: some are fine, some not HTTP, many have aliases or several lines."""
    headers: list[Header] = [("Host", HOST)]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        text = rng.choice(VERSIONS)
        standard = rng.choice(
            (f"baremetal {text}", f"compute 2.1, baremetal {text}", f"compute {text}", text)
        )
        name = rng.choice(NAMES)
        headers.append(
            (name, standard if "stack-api" in name.lower() and "nic" not in name.lower() else text)
        )
    if rng.random() < 0.15:
        headers.append(rng.choice(OTHER_LINES))
    rng.shuffle(headers)
    return rng.choice(METHODS), rng.choice(PATHS), headers


async def outcome(
    gateway: Gateway, backends: list[ScriptedBackend], request: tuple[str, str, list[Header]]
) -> tuple[int, list[Message]]:
    """What the client gets, and what the backends got."""
    method, target, headers = request
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    for backend in backends:
        backend.requests.clear()
    response = await gateway.request(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode())
    return response.status, [message for backend in backends for message in backend.requests]


def explanation_or_status(gateway: Gateway, request: tuple[str, str, list[Header]]) -> Any | int:
    """The explanation, or the status that refuses what is not HTTP."""
    try:
        return explained(gateway.snapshot_holder.current, *request)
    except FramingError as refusal:
        return refusal.status


def disagreement(shown: Any, status: int, sent: list[Message]) -> str | None:
    """Where the explanation differs from what happened."""
    if shown.decision != "forward":
        return None if (status, sent) == (shown.status, []) else f"{shown.decision} {shown.status}"
    versions = [value for message in sent for value in message.every(VERSION_FIELD)]
    told = [line.partition(": ")[2] for line in shown.sends if line.startswith(VERSION_FIELD)]
    return None if len(sent) == 1 and versions == told else f"forward with {told}"


async def test_R_A15_explain_says_what_the_gateway_does_with_1000_requests(testbed: Testbed) -> None:
    backends = [await testbed.backend(declared=each) for each in ("1.1-1.58", "1.1-1.90", "1.1-1.90")]
    gateway = await testbed.gateway(*backends)
    gateway.snapshot_holder.apply("baremetal", Drain(backends[2].name))
    rng = random.Random(15)
    kinds = dict.fromkeys(("forward", "refuse", "not HTTP"), 0)

    for _ in range(REQUESTS):
        request = generated(rng)
        status, sent = await outcome(gateway, backends, request)
        shown = explanation_or_status(gateway, request)
        if isinstance(shown, int):
            kinds["not HTTP"] += 1
            assert (status, sent) == (shown, []), request
            continue
        kinds[shown.decision] += 1
        wrong = disagreement(shown, status, sent)
        assert wrong is None, f"{request}: explain says {wrong}; the client got {status}, sent was {sent}"

    assert min(kinds.values()) >= REQUESTS // 10, kinds


@pytest.mark.parametrize("text", ["1.59", "1.95", "x"])
async def test_R_A15_a_refusal_says_who_could_serve_the_version(testbed: Testbed, text: str) -> None:
    """Then an operator sees whether an upgrade, a ceiling or nobody at all is the reason."""
    backends = [await testbed.backend(declared=each) for each in ("1.1-1.58", "1.1-1.90")]
    gateway = await testbed.gateway(*backends)

    document = explained_json(
        gateway.snapshot_holder.current, "GET", "/v1/nodes", [("Host", HOST), (VERSION_FIELD, text)]
    )

    assert document["decision"] == "refuse"
    could = {"1.59": [False, True], "1.95": [False, False], "x": [None, None]}[text]
    assert [each["could_serve"] for each in document["left_out"]] == could
    assert ["it serves 1.59" in each["why"] for each in document["left_out"]] == [False, text == "1.59"]
