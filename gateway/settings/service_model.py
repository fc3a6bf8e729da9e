"""The shape of one service in the file: every key with its default, the reason for it, a description, an
example.

Defaults are written as an operator would write them, and read by the same code. What needs the dialect is
checked in `services`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Tag

from gateway.settings.addresses import Host, Path, Url
from gateway.settings.operation_model import Operation
from gateway.settings.reading import words
from gateway.settings.scalars import (
    BackendName,
    Duration,
    Flag,
    HeaderName,
    HeaderValue,
    Share,
    Text,
    VersionText,
    Wait,
    count,
)
from gateway.settings.section import (
    OTHER_SHAPE,
    TEXT_SHAPE,
    Section,
    by_shape,
    key,
    required,
)


class Match(Section):
    """Which requests belong to the service."""

    host: Host | None = key(
        None,
        "The request's Host, without port. Left out: any.",
        reason="Most gateways have one name.",
        example="baremetal.example.org",
    )
    path: Path = key(
        "/",
        "A path prefix on a segment boundary; the longest match wins.",
        reason="One service needs no prefix.",
        example="/baremetal",
    )
    strip_prefix: Flag = key(
        default=True,
        description="Whether backends get the path without the prefix.",
        reason="API servers on an address of their own serve from the root.",
        example=False,
    )


class Backend(Section):
    """One replica's address."""

    url: Url = required(
        "http://HOST[:PORT][/base]; the base path is put before every path.",
        reason="A backend is its address.",
        example="http://127.0.0.1:6385",
    )
    name: BackendName | None = key(
        None,
        "The name in status, metrics and logs, unique in the service. Left out: the URL's HOST:PORT.",
        reason="HOST:PORT is what people look for first.",
        example="api-1",
    )
    versions: VersionText | None = key(
        None,
        "The versions it serves, instead of asking it: `1.1-1.58`, `1.1-1.58, 1.60`; dates and names as "
        "`a..b` or a list.",
        reason="Asking the backend is always true; declaring is for servers that cannot say it.",
        example="1.1-1.58",
    )
    weight: Annotated[int, count(1, 1000)] = key(
        1,
        "Its share of the requests, relative to the other backends'.",
        reason="Replicas are alike.",
        example=2,
    )


class Probe(Section):
    """How backends are asked for their versions."""

    interval: Duration = key(
        "5s",
        "Between two probes of one backend, with jitter.",
        reason="Replies carry the news sooner; this is for idle backends. A probe costs less than a request.",
        example="10s",
    )
    timeout: Duration = key(
        "2s",
        "For one whole answer.",
        reason="A discovery document is made without a database; slower means overloaded.",
        example="5s",
    )
    path: Path | None = key(
        None,
        "What to ask for, instead of the dialect's own place.",
        reason="The dialect knows where its servers say it.",
        example="/v1",
    )
    headers: dict[HeaderName, HeaderValue] = key(
        {},
        "Sent with each probe. Values are never shown.",
        reason="Discovery is open in every dialect.",
        example={"X-Auth-Token": "${PROBE_TOKEN}"},
    )


class ReleaseCeiling(Section):
    """A ceiling by the name of a release."""

    release: Text = required(
        "A release of the dialect's table or of `releases`.",
        reason="Without one there is no ceiling.",
        example="2024.1",
    )


class Offer(Section):
    """What clients are told the service serves."""

    policy: Annotated[str, words("guaranteed", "reachable", "at_least")] = key(
        "guaranteed",
        "guaranteed: what every backend in service serves. reachable: what at least one serves. at_least: "
        "what at least `at_least` of them serve.",
        reason="A client keeps a version for hours: only what every backend serves survives the loss of one.",
        example="reachable",
    )
    at_least: Share | None = key(
        None,
        "For the policy of that name: how many of the backends in service must serve a version, as a number "
        "or a percentage, which is rounded up.",
        reason="The other policies need none.",
        example="50%",
    )
    settle: Wait = key(
        "5s",
        "How long the policy must have given a version before it is offered, too; `0s`: at once. The first "
        "offer does not wait.",
        reason="One interval of probes: a server that is rolled back at once does not raise the offer.",
        example="30s",
    )
    ceiling: (
        Annotated[
            Annotated[VersionText, Tag(TEXT_SHAPE)] | Annotated[ReleaseCeiling, Tag(OTHER_SHAPE)], by_shape
        ]
        | None
    ) = key(
        None,
        'The highest version on offer, as a version ("1.90") or as {release: NAME}.',
        reason="The fleet itself says what it can.",
        example="1.90",
    )


class Retry(Section):
    """When a request is tried on another backend."""

    attempts: Annotated[int, count(1, 10)] = key(
        3,
        "After `no_reply`: how often a request may be tried in all; 1: it is never sent again. "
        "After `connect`, which sent nothing, it goes on to every capable backend; after `version` once to "
        "another one.",
        reason="Two more backends are enough to step over one that restarts and one that follows it.",
        example=2,
    )
    on: tuple[Annotated[str, words("connect", "no_reply", "version")], ...] = key(
        ("connect", "no_reply", "version"),
        "connect: no connection, nothing was sent. no_reply: sent, but not one byte came back (in "
        "time: then once more); only methods that are safe to repeat. "
        "version: the backend refused the version.",
        reason="In all three nothing can be executed twice to any effect.",
        example=["connect"],
    )


def dialect_key() -> Any:  # noqa: ANN401
    """The key that names a service's dialect; `schema` knows which words may stand there."""
    return required(
        "How this API speaks about versions.",
        reason="A wrong guess would misread every request.",
        example="ironic",
    )


class Service(Section):
    """One versioned API with one dialect."""

    dialect: Text = dialect_key()
    backends: tuple[Backend, ...] = required(
        "The replicas, at least one.",
        reason="A service without one can answer nothing.",
        example=[{"url": "http://127.0.0.1:6385"}],
        minItems=1,
    )
    match: Match = key(
        {},
        "Which requests belong to the service.",
        reason="A single service takes them all.",
        example={"path": "/baremetal"},
    )
    probe: Probe = key(
        {},
        "How backends are asked for their versions.",
        reason="The dialect knows how.",
        example={"interval": "10s"},
    )
    offer: Offer = key(
        {},
        "What clients are told the service serves.",
        reason="What every backend serves, without a cap.",
        example={"ceiling": "1.90"},
    )
    releases: dict[Text, VersionText] = key(
        {},
        "Release names beyond the dialect's table, each with its highest version, for `offer.ceiling`.",
        reason="The dialect's table knows the public releases.",
        example={"our-build-7": "1.90"},
    )
    default_version: VersionText | None = key(
        None,
        "What a request without a version means: minimum, maximum or a version. Left out: as the "
        "dialect says.",
        reason="Clients were written against what their servers do.",
        example="minimum",
    )
    operations: tuple[Operation, ...] = key(
        (),
        "What exists in some of the service's versions only. Asked for in another one, it is refused in the "
        "dialect's own words, and no backend is touched. Every other path has the range of the service.",
        reason="The backends know their operations; the gateway needs to be told.",
        example=[{"methods": ["GET"], "path": "/v1/nodes/{node}/vifs", "versions": ">=1.28"}],
    )
    retry: Retry = key(
        {},
        "When a request is tried on another backend.",
        reason="Only where nothing was executed.",
        example={"attempts": 2},
    )
