"""Whether the environment asks for traces, and what it says that cannot be right.

    OTEL_*  ->  a `Tracing` with an OpenTelemetry sink, or none and a line that says why

The variables are OpenTelemetry's own; the SDK reads most of them itself. Nothing that they say keeps the
gateway from serving: what is wrong is an error in the log, and then trace headers pass as they came. What
OpenTelemetry itself has to say goes through the process log, without secrets and not again and again.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, final
from urllib.parse import urlsplit

from gateway.telemetry.tracing import Sampler, Tracing

if TYPE_CHECKING:
    from gateway.telemetry.spans import OpenTelemetrySink

CLOSE_TIMEOUT: Final = 1.5
"""Seconds that the last spans get at the end."""
REPEATED_AFTER: Final = 60.0
"""Seconds until the same message of OpenTelemetry is logged again."""
MAX_MESSAGES: Final = 64
"""Messages of which that is remembered."""

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_SAMPLER_ARG: Final = "OTEL_TRACES_SAMPLER_ARG"
_DEFAULT_ENDPOINT: Final = "http://localhost:4318"
_DEFAULT_SAMPLER: Final = "parentbased_always_on"
_LIBRARY: Final = "opentelemetry"
"""Under which name it logs."""
_PROTOCOL: Final = "http/protobuf"
_SHARES: Final = {"always_on": 1.0, "always_off": 0.0}
_RATIO: Final = "traceidratio"
_BY_PARENT: Final = "parentbased_"

_log = logging.getLogger("skewgate.tracing")


class _Setting(NamedTuple):
    name: str
    value: str


@final
class OpenTelemetry:
    """What runs while the gateway traces."""

    def __init__(self, tracing: Tracing, sink: OpenTelemetrySink) -> None:
        self.tracing = tracing
        self._sink = sink

    async def close(self) -> None:
        """Send the spans that wait, in `CLOSE_TIMEOUT` at most."""
        if not await asyncio.to_thread(self._sink.close, CLOSE_TIMEOUT):
            _log.warning("the last spans are lost: the collector did not take them in %.1f s", CLOSE_TIMEOUT)
        logging.getLogger(_LIBRARY).handlers = [logging.NullHandler()]


def start_tracing(environ: Mapping[str, str]) -> OpenTelemetry | None:
    """Trace as `OTEL_*` says; None: it does not ask for that, or it cannot be done, which is logged."""
    asked_by = _asked_by(environ)
    if asked_by is None:
        return None
    try:
        spans = importlib.import_module("gateway.telemetry.spans")
    except ImportError as error:
        _log.error(
            "%s asks for traces, but OpenTelemetry is not installed (%s): install skewgate[otel]; trace "
            "headers pass as they came",
            asked_by.name,
            error,
        )
        return None
    problem = _problem(environ)
    if problem:
        _log.error("%s; no spans are sent, and trace headers pass as they came", problem)
        return None
    _quieten(environ)
    try:
        sink: OpenTelemetrySink = spans.OpenTelemetrySink(environ)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises about its settings
        _log.error("OpenTelemetry does not start: %s; trace headers pass as they came", error)
        return None
    name, sampler = read_sampler(environ)
    _log.info("spans go to %s, sampled by %s", _without_user(_endpoint(environ).value), name)
    return OpenTelemetry(Tracing(sampler, sink), sink)


def _asked_by(environ: Mapping[str, str]) -> _Setting | None:
    """The setting that asks for traces. A name of the service alone does not."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporters = [each.strip() for each in environ.get(_EXPORTER, "").lower().split(",") if each.strip()]
    if exporters:
        return _Setting(_EXPORTER, environ[_EXPORTER]) if exporters != ["none"] else None
    endpoint = _endpoint(environ)
    return endpoint if endpoint.name else None


def _endpoint(environ: Mapping[str, str]) -> _Setting:
    found = (_Setting(name, environ[name]) for name in _ENDPOINTS if environ.get(name))
    return next(found, _Setting("", _DEFAULT_ENDPOINT))


def _problem(environ: Mapping[str, str]) -> str:
    """What cannot be right in the settings; empty: nothing."""
    exporters = {each.strip() for each in environ.get(_EXPORTER, "otlp").lower().split(",") if each.strip()}
    if exporters and "otlp" not in exporters:
        return f"{_EXPORTER} is {environ[_EXPORTER]!r}: skewgate knows otlp and none"
    protocol = next((_Setting(name, environ[name]) for name in _PROTOCOLS if environ.get(name)), None)
    if protocol is not None and protocol.value.strip() != _PROTOCOL:
        return f"{protocol.name} is {protocol.value!r}: skewgate speaks {_PROTOCOL}"
    endpoint = _endpoint(environ)
    try:
        parts = urlsplit(endpoint.value)
        valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        return f"{endpoint.name} is {_without_user(endpoint.value)!r}: a URL is needed, http://HOST:PORT"
    return ""


def _without_user(url: str) -> str:
    """A URL without what may be a secret in it."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}".partition("?")[0]


def read_sampler(environ: Mapping[str, str]) -> tuple[str, Sampler]:
    """The sampler, and its name. As OpenTelemetry has it, one that is unknown or malformed is an error in the
    log, and the default counts."""
    name = environ.get(_SAMPLER, "").strip().lower() or _DEFAULT_SAMPLER
    kind = name.removeprefix(_BY_PARENT)
    if kind not in {*_SHARES, _RATIO}:
        _log.error("%s is %r, which skewgate does not know: %s counts", _SAMPLER, name, _DEFAULT_SAMPLER)
        name, kind = _DEFAULT_SAMPLER, "always_on"
    by_parent = name.startswith(_BY_PARENT)
    if kind != _RATIO:
        return name, Sampler(_SHARES[kind], by_parent)
    text = environ.get(_SAMPLER_ARG, "").strip() or "1"
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        _log.error("%s is %r, which is no number from 0 to 1: 1 counts", _SAMPLER_ARG, text)
        text, share = "1", 1.0
    return f"{name} {text}", Sampler(share, by_parent)


# --- what OpenTelemetry says -------------------------------------------------------------------------------


def _quieten(environ: Mapping[str, str]) -> None:
    """From here on what OpenTelemetry logs is logged once a minute at most, without headers of its own."""
    logger = logging.getLogger(_LIBRARY)
    logger.propagate = False
    logger.handlers = [_Forwarder([environ[name] for name in _HEADERS if environ.get(name)])]


@final
class _Forwarder(logging.Handler):
    """Writes what OpenTelemetry logs as ours: one line without a traceback, the same message once a minute.
    A collector that is away would otherwise fill the log."""

    def __init__(self, headers: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._secrets = [
            secret
            for text in headers
            for secret in (text, *(pair.partition("=")[2].strip() for pair in text.split(",")))
            if secret
        ]
        self._logged_until: dict[object, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now, key = monotonic(), record.msg
        if now < self._logged_until.get(key, 0.0):
            return
        if len(self._logged_until) >= MAX_MESSAGES:
            self._logged_until.clear()
        self._logged_until[key] = now + REPEATED_AFTER
        text = " ".join(record.getMessage().split())
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]}"
        for secret in self._secrets:
            text = text.replace(secret, "***")
        _log.warning("OpenTelemetry: %s", text)
