"""Start of OpenTelemetry tracing, as the environment configures it.

    OTEL_*  ->  a `Tracing` with an OpenTelemetry sink, or none and a log line that says why

The variables are OpenTelemetry's own; the SDK reads most of them itself. No value of them keeps the gateway
from serving: a wrong one is an error in the log, and trace headers then pass unchanged. Messages of
OpenTelemetry go to the process log, without secrets and at most once a minute each.
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
"""Maximum seconds for sending the last spans when tracing ends."""
REPEATED_AFTER: Final = 60.0
"""Minimum seconds between two log lines with the same message of OpenTelemetry."""
MAX_MESSAGES: Final = 64
"""Maximum messages of OpenTelemetry for which the time of their last log line is remembered."""

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_SAMPLER_ARG: Final = "OTEL_TRACES_SAMPLER_ARG"
_DEFAULT_ENDPOINT: Final = "http://localhost:4318"
_DEFAULT_SAMPLER: Final = "parentbased_always_on"
_LIBRARY: Final = "opentelemetry"
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
    """OpenTelemetry tracing that has been started, with its connection to a collector."""

    def __init__(self, tracing: Tracing, sink: OpenTelemetrySink) -> None:
        self.tracing = tracing
        self._sink = sink

    async def close(self) -> None:
        if not await asyncio.to_thread(self._sink.close, CLOSE_TIMEOUT):
            _log.warning(
                "the last spans are dropped: the collector did not accept them in %.1f s", CLOSE_TIMEOUT
            )
        logging.getLogger(_LIBRARY).handlers = [logging.NullHandler()]


def start_tracing(environ: Mapping[str, str]) -> OpenTelemetry | None:
    """Starts tracing as `OTEL_*` configures it; None: it is not configured, or fails, which is logged."""
    asked_by = _asked_by(environ)
    if asked_by is None:
        return None
    try:
        spans = importlib.import_module("gateway.telemetry.spans")
    except ImportError as error:
        _log.error(
            "%s is set, but OpenTelemetry is not installed (%s): install skewgate[otel]; no spans are sent, "
            "and trace headers pass unchanged",
            asked_by.name,
            error,
        )
        return None
    problem = _problem(environ)
    if problem:
        _log.error("%s; no spans are sent, and trace headers pass unchanged", problem)
        return None
    _quieten(environ)
    try:
        sink: OpenTelemetrySink = spans.OpenTelemetrySink(environ)
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises about its settings
        _log.error(
            "OpenTelemetry cannot start: %s; no spans are sent, and trace headers pass unchanged", error
        )
        return None
    name, sampler = read_sampler(environ)
    _log.info("sending spans to %s, sampled by %s", _without_user(_endpoint(environ).value), name)
    return OpenTelemetry(Tracing(sampler, sink), sink)


def _asked_by(environ: Mapping[str, str]) -> _Setting | None:
    """Returns the `OTEL_*` setting that turns tracing on, if any; a service name alone does not."""
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
    """Returns what is wrong with the `OTEL_*` settings; empty: nothing."""
    exporters = {each.strip() for each in environ.get(_EXPORTER, "otlp").lower().split(",") if each.strip()}
    if exporters and "otlp" not in exporters:
        return f"{_EXPORTER} is {environ[_EXPORTER]!r}: set it to otlp or none"
    protocol = next((_Setting(name, environ[name]) for name in _PROTOCOLS if environ.get(name)), None)
    if protocol is not None and protocol.value.strip() != _PROTOCOL:
        return f"{protocol.name} is {protocol.value!r}: set it to {_PROTOCOL}"
    endpoint = _endpoint(environ)
    try:
        parts = urlsplit(endpoint.value)
        valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        return f"{endpoint.name} is {_without_user(endpoint.value)!r}: set it to a URL, http://HOST:PORT"
    return ""


def _without_user(url: str) -> str:
    """Removes user, password and query from a URL, which may be secrets."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}".partition("?")[0]


def read_sampler(environ: Mapping[str, str]) -> tuple[str, Sampler]:
    """Reads the sampler of traces, with its name. An invalid one is logged, and the default is used."""
    name = environ.get(_SAMPLER, "").strip().lower() or _DEFAULT_SAMPLER
    kind = name.removeprefix(_BY_PARENT)
    if kind not in {*_SHARES, _RATIO}:
        _log.error("%s is %r, which skewgate does not know: using %s", _SAMPLER, name, _DEFAULT_SAMPLER)
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
        _log.error("%s is %r, which is not a number from 0 to 1: using 1", _SAMPLER_ARG, text)
        text, share = "1", 1.0
    return f"{name} {text}", Sampler(share, by_parent)


def _quieten(environ: Mapping[str, str]) -> None:
    """Limits log messages of OpenTelemetry to one a minute each, without the headers it sends."""
    logger = logging.getLogger(_LIBRARY)
    logger.propagate = False
    logger.handlers = [_Forwarder([environ[name] for name in _HEADERS if environ.get(name)])]


@final
class _Forwarder(logging.Handler):
    """Log handler that forwards messages of OpenTelemetry as one line, and the same one once a minute."""

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
