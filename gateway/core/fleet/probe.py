"""Settings of probes: `services.NAME.probe`, with the health check that may follow each probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from gateway.keys.addresses import PATH
from gateway.keys.kinds import Table, section
from gateway.keys.secrets import MaskedText
from gateway.keys.texts import DURATION, HEADER_NAME, HEADER_VALUE, count


@final
@dataclass(frozen=True, slots=True)
class Health:
    """Health check: whether a backend wants requests, asked beside its versions."""

    path: str = field(
        metadata=PATH.required(
            "The path of the GET request after each probe, below the base path of the backend.",
            reason="APIs have it in different places.",
            example="/healthcheck",
        )
    )
    status: int = count(200, 299).key(
        200,
        "The status of a healthy backend. 404, 405 and 501 mean that it has no such check; redirects are "
        "ignored. At any other status it is unhealthy: it gets no new requests while another backend that "
        "serves the version is usable.",
        reason="The healthy status of oslo.middleware and of all others.",
        example=204,
    )


HEALTH: Final = section(Health, "Health check: whether a backend wants requests, asked beside its versions.")


@final
@dataclass(frozen=True, slots=True)
class Probe:
    """Probes by which the gateway learns the versions of backends."""

    interval: float = DURATION.key(
        "5s",
        "Time between two probes of one backend, with jitter.",
        reason="Ordinary responses show changes sooner; this is for idle backends. A probe costs little.",
        example="10s",
    )
    timeout: float = DURATION.key(
        "2s",
        "Longest duration of one whole probe.",
        reason="A discovery document needs no database; a server that is slower is overloaded.",
        example="5s",
    )
    path: str | None = PATH.key(
        None,
        "The path to probe, instead of the dialect's own.",
        reason="The dialect knows where its servers list their versions.",
        example="/v1",
    )
    headers: Mapping[str, MaskedText] = Table(HEADER_NAME, HEADER_VALUE).key(
        {},
        "Headers that are sent with each probe. Their values are never shown.",
        reason="Discovery needs no authentication in any dialect.",
        example={"X-Auth-Token": "${PROBE_TOKEN}"},
    )
    health: Health | None = HEALTH.key(
        None,
        "A health check after each probe. Without this key: none.",
        reason="A server that answers probes is usually healthy.",
        example={"path": "/healthcheck"},
    )


PROBE: Final = section(Probe, "Probes by which the gateway learns the versions of backends.")
DEFAULT_PROBE: Final = Probe()
