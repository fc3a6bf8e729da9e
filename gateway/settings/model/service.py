"""The shape of one service: every key with its default and the reason for it, a description and an example.

Defaults are written as an operator would write them, and read by the same code. What needs the dialect is
checked in `checks.services`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Tag

from gateway.settings.model.addresses import Host, Path, Url
from gateway.settings.model.fields import (
    OTHER_SHAPE,
    TEXT_SHAPE,
    BackendName,
    Duration,
    Flag,
    HeaderName,
    HeaderValue,
    Section,
    Share,
    Text,
    VersionText,
    Wait,
    by_shape,
    count,
    key,
    one_of,
    required,
)
from gateway.settings.model.operation import Operation


class Match(Section):
    """Which requests belong to the service."""

    host: Host | None = key(
        None,
        "The Host of the request, without port. Without this key: any.",
        reason="Most gateways have one name.",
        example="baremetal.example.org",
    )
    path: Path = key(
        "/",
        "A path prefix on a segment boundary. The longest match wins.",
        reason="A single service needs no prefix.",
        example="/baremetal",
    )
    strip_prefix: Flag = key(
        default=True,
        description="Whether backends get the path without the prefix.",
        reason="An API server with its own address serves from the root.",
        example=False,
    )


class Backend(Section):
    """One replica's address."""

    url: Url = required(
        "http://HOST[:PORT][/base]. The base path is added before every path.",
        reason="A backend has no other identity than its address.",
        example="http://127.0.0.1:6385",
    )
    name: BackendName | None = key(
        None,
        "The name in status, metrics and logs, unique in the service. Without it: HOST:PORT of the URL.",
        reason="People look for HOST:PORT first.",
        example="api-1",
    )
    versions: VersionText | None = key(
        None,
        "The versions that it serves, instead of probes: `1.1-1.58`, `1.1-1.58, 1.60`; dates and names as "
        "`a..b` or a list.",
        reason="A probe is always true; declared versions are for servers that do not say what they serve.",
        example="1.1-1.58",
    )
    weight: Annotated[int, count(1, 1000)] = key(
        1,
        "Its share of the requests, relative to the other backends.",
        reason="Replicas are usually equal.",
        example=2,
    )


class Probe(Section):
    """How backends are probed for their versions."""

    interval: Duration = key(
        "5s",
        "Between two probes of one backend, with jitter.",
        reason="Ordinary responses show changes sooner; this is for idle backends. A probe costs little.",
        example="10s",
    )
    timeout: Duration = key(
        "2s",
        "For one whole probe.",
        reason="A discovery document needs no database; a server that is slower is overloaded.",
        example="5s",
    )
    path: Path | None = key(
        None,
        "The path to probe, instead of the dialect's own.",
        reason="The dialect knows where its servers say what they serve.",
        example="/v1",
    )
    headers: dict[HeaderName, HeaderValue] = key(
        {},
        "Headers that are sent with each probe. Their values are never shown.",
        reason="Discovery needs no authentication in any dialect.",
        example={"X-Auth-Token": "${PROBE_TOKEN}"},
    )


class ReleaseCeiling(Section):
    """A ceiling that names a release."""

    release: Text = required(
        "A release of the dialect's table or of `releases`.",
        reason="A ceiling needs a version or a release.",
        example="2024.1",
    )


class Offer(Section):
    """The versions that the service offers to clients."""

    policy: Annotated[str, one_of("guaranteed", "reachable", "at_least")] = key(
        "guaranteed",
        "guaranteed: what every backend in service serves. reachable: what at least one serves. at_least: "
        "what at least `at_least` of them serve.",
        reason="Clients keep a version for hours. Only what every backend serves survives the loss of one.",
        example="reachable",
    )
    at_least: Share | None = key(
        None,
        "For the policy `at_least`: how many of the backends in service must serve a version, as a number or "
        "as a percentage, which is rounded up.",
        reason="The other policies need no number.",
        example="50%",
    )
    stabilization: Wait = key(
        "5s",
        "How long the policy must give a version before it is added to the offer; `0s`: at once. The first "
        "offer waits so long at most, for backends that have not answered.",
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
        reason="The fleet shows what it can serve.",
        example="1.90",
    )


class Retry(Section):
    """When a request is sent to another backend."""

    attempts: Annotated[int, count(1, 10)] = key(
        3,
        "After `no_reply`, or a response without the served version: how many attempts a request may have "
        "in total; 1: it is never sent again. "
        "After `connect`, where nothing was sent, every capable backend is tried; after a refusal of the "
        "version one other.",
        reason="Two more backends are enough when one restarts and the next one follows.",
        example=2,
    )
    on: tuple[Annotated[str, one_of("connect", "no_reply", "version")], ...] = key(
        ("connect", "no_reply", "version"),
        "connect: no connection, so nothing was sent. no_reply: sent, but no byte of a response arrived; "
        "only for methods that are safe to repeat, and after a timeout only once. version: the backend "
        "refused the version, or its response to GET, HEAD or OPTIONS lacks the served version that this "
        "API's servers always name.",
        reason="In these cases a second attempt does no harm: nothing was executed, or it may be repeated.",
        example=["connect"],
    )


def dialect_key() -> Any:  # noqa: ANN401
    """The key that names a service's dialect. `schema` knows the dialects."""
    return required(
        "The dialect: how this API expresses versions.",
        reason="A wrong guess would misread every request.",
        example="ironic",
    )


class Service(Section):
    """One versioned API with one dialect."""

    dialect: Text = dialect_key()
    backends: tuple[Backend, ...] = required(
        "The replicas, at least one.",
        reason="A service without a backend cannot respond.",
        example=[{"url": "http://127.0.0.1:6385"}],
        minItems=1,
    )
    match: Match = key(
        {},
        "Which requests belong to the service.",
        reason="A single service gets all requests.",
        example={"path": "/baremetal"},
    )
    probe: Probe = key(
        {},
        "How backends are probed for their versions.",
        reason="The dialect knows how.",
        example={"interval": "10s"},
    )
    offer: Offer = key(
        {},
        "The versions that the service offers to clients.",
        reason="What every backend serves, without a ceiling.",
        example={"ceiling": "1.90"},
    )
    releases: dict[Text, VersionText] = key(
        {},
        "Release names beyond the dialect's table, each with its highest version, for `offer.ceiling`.",
        reason="The dialect's table has the public releases.",
        example={"our-build-7": "1.90"},
    )
    default_version: VersionText | None = key(
        None,
        "What a request without a version gets: minimum or maximum (of the offer), refused, or a version. "
        "Without this key: what the dialect's servers do.",
        reason="Clients were written for what their servers do.",
        example="minimum",
    )
    retry_after: Flag | None = key(
        None,
        "Whether a 503 of the gateway has `Retry-After`. Without this key: unless the dialect's clients "
        "break on it (ironic, and the Manila and Ironic Inspector of openstack).",
        reason="python-ironicclient and manilaclient raise TypeError at it. Other clients wait as it says.",
        example=True,
    )
    operations: tuple[Operation, ...] = key(
        (),
        "Operations that exist only in some versions of the service. In other versions the gateway refuses "
        "them as the dialect's servers do; no backend is touched. All other paths exist in every version.",
        reason="Only the backends know their operations. The gateway must be configured.",
        example=[{"methods": ["GET"], "path": "/v1/nodes/{node}/vifs", "versions": ">=1.28"}],
    )
    retry: Retry = key(
        {},
        "When a request is sent to another backend.",
        reason="Only where a second attempt does no harm.",
        example={"attempts": 2},
    )
