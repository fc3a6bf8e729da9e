"""`skewgate init --from URL`: a configuration with comments, made from the answers of an API that runs.

Every dialect probes the API as the gateway would. The one that reads its versions, and needs to be told
least, is taken. What is written is a beginning: it says what can be added, and `check` finds nothing wrong
with it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from gateway import process
from gateway.cli import offline
from gateway.cli.command import FileName, verb
from gateway.core.dialect import Dialect
from gateway.core.fleet.snapshot import ServiceView, Snapshot
from gateway.dialects import discover
from gateway.errors import AdminError, SettingsError
from gateway.settings import Settings, load
from gateway.terminal import plain, print_error, span

DETAILS: Final = (
    "URL is the address of one server of the API, http://HOST:PORT or https://HOST:PORT, not that of a load"
    " balancer; several make several backends. The file goes to standard output, or to --to. Nothing is"
    " changed anywhere."
)
NO_CONNECTION: Final = "no connection to "
LISTEN: Final = "127.0.0.1:8080"


@verb("init", DETAILS)
@click.option(
    "--from", "urls", metavar="URL", required=True, multiple=True, help="a server; may be given several times"
)
@click.option("--dialect", metavar="NAME", help="do not find out, use this one")
@click.option("--service", metavar="NAME", help="the name of the service; default: that of the dialect")
@click.option("--listen", metavar="ADDRESS", default=LISTEN, show_default=True, help="where clients connect")
@click.option(
    "--ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="https: the CA of the servers' certificates",
)
@click.option("--to", metavar="FILE", type=FileName(), help="write this file, which must not exist")
def command(
    *,
    urls: Sequence[str],
    dialect: str | None,
    service: str | None,
    listen: str,
    ca: str | None,
    to: Path | None,
) -> int:
    """Write the file. Raises `SettingsError` for a bad option and `AdminError` if no dialect fits."""
    known = discover()
    if dialect is not None and dialect not in known:
        raise SettingsError(f"there is no dialect {dialect!r}; there are: {', '.join(known)}")
    candidates = [dialect] if dialect is not None else _most_specific_first(known)
    snapshot = process.run_in_loop(offline.probed(_probe_settings(urls, candidates, ca)))
    view = snapshot.views[dialect if dialect is not None else _choose(urls, snapshot)]
    text = "".join(_text(view, urls, service or view.service.dialect.name, listen, ca))
    _require(text)
    for url, member in zip(urls, view.pool.members, strict=True):
        if member.advertisement is None:
            print_error(f"warning: {plain(url)}: {plain(member.probe_error or 'no answer')}")
    if to is None:
        print(text, end="")
    else:
        _write(to, text)
        print(f"{to}: written; next: skewgate check {to} && skewgate run -c {to}")
    return 0


def _most_specific_first(known: Mapping[str, type[Dialect]]) -> list[str]:
    """Those that can be used without any option, the one with the fewest options first: the more a dialect
    has to be told, the less it says that it can read an answer."""
    usable = [
        name
        for name, dialect in known.items()
        if not any(
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            for field in dataclasses.fields(dialect.Options)
        )
    ]
    return sorted(usable, key=lambda name: (len(dataclasses.fields(known[name].Options)), name))


def _probe_settings(urls: Sequence[str], dialects: Sequence[str], ca: str | None) -> Settings:
    """One service for each of the dialects that can be used without options, with the same backends. Raises
    `SettingsError` if there is none, as with a bad URL."""
    backends = [
        {"name": f"server-{number}", "url": url, **({"tls": {"ca": ca}} if ca else {})}
        for number, url in enumerate(urls)
    ]
    services: dict[str, object] = {}
    refused: list[str] = []
    for name in dialects:
        service = {"dialect": name, "match": {"host": f"{name}.invalid"}, "backends": backends}
        try:
            _read({name: service})
        except SettingsError as problem:
            refused.append(str(problem))
        else:
            services[name] = service
    if not services:
        raise SettingsError(min(refused, key=len))
    return _read(services)


def _read(services: Mapping[str, object]) -> Settings:
    """The settings with these services. JSON is YAML. Raises `SettingsError`."""
    return _require(json.dumps({"listen": LISTEN, "services": services}, indent=1))


def _choose(urls: Sequence[str], snapshot: Snapshot) -> str:
    """The first service whose dialect found versions. Raises `AdminError`."""
    reasons = []
    errors = set()
    for name, pool in snapshot.fleet.pools.items():
        found = [member.advertisement for member in pool.members]
        if any(each is not None and each.versions and not each.legacy for each in found):
            return name
        error = next((member.probe_error for member in pool.members if member.probe_error), "no versions")
        reasons.append(f"\n  {name}: {plain(error)}")
        errors.add(error)
    if len(errors) == 1 and all(error.startswith(NO_CONNECTION) for error in errors):
        raise AdminError(f"no server answers at {', '.join(map(plain, urls))}: {plain(errors.pop())}")
    raise AdminError(
        f"no dialect finds versions at {', '.join(map(plain, urls))}:{''.join(reasons)}\n"
        "Name one with --dialect, or describe the API with the dialect `custom`: see docs/dialects.md."
    )


def _text(view: ServiceView, urls: Sequence[str], name: str, listen: str, ca: str | None) -> Iterator[str]:
    """The pieces of the file."""
    dialect = view.service.dialect
    yield _HEAD.format(listen=_scalar(listen), service=name, dialect=dialect.name)
    yield from _options(dialect)
    yield _BACKENDS
    found = [member.advertisement for member in view.pool.members]
    for url, advertisement in zip(urls, found, strict=True):
        known = advertisement.versions if advertisement is not None else None
        if known:
            ends = dialect.scheme.format(known.lowest), dialect.scheme.format(known.highest)
            yield f"      # served {span(*ends)} when this was written\n"
        else:
            yield "      # named no versions when this was written\n"
        yield f"      - url: {_scalar(url)}\n"
        if ca:
            yield f"        tls:\n          ca: {_scalar(ca)}\n"
    highest = max(
        (each.versions.highest for each in found if each is not None and each.versions), default=None
    )
    if highest is not None:
        yield _OFFER.format(ceiling=dialect.scheme.format(highest))


def _options(dialect: Dialect) -> Iterator[str]:
    """What may have to be said about the API, each option with its default."""
    options = [
        field for field in dataclasses.fields(dialect.Options) if isinstance(field.default, str | bool)
    ]
    if options:
        yield f"    # {dialect.name}:\n"
    for field in options:
        sentence = str(field.metadata.get("description", "")).partition(". ")[0].rstrip(".")
        default = (
            str(field.default).lower() if isinstance(field.default, bool) else _scalar(str(field.default))
        )
        yield f"    #   # {sentence}.\n    #   {field.name}: {default}\n"


def _scalar(text: str) -> str:
    """A text as it is written in the file."""
    plain_text = text and not any(sign in text for sign in "#{}[],&*!|>'\"%@` \t\\") and ": " not in text
    return text if plain_text else json.dumps(text, ensure_ascii=False)


def _require(text: str) -> Settings:
    """The settings of a text made here: what is wrong in it came from an option. Raises `SettingsError`."""
    loaded = load(text, filename="init", environ={})
    if loaded.errors:
        raise SettingsError("; ".join(dict.fromkeys(problem.message for problem in loaded.errors)))
    return loaded.require()


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise SettingsError(f"{file} exists already and is left as it is") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(f"{file} cannot be written: {reason}") from None


_HEAD: Final = """\
# Made by `skewgate init` from the answers of a running API. `skewgate check` validates it, and
# `skewgate schema` describes every key.

# Where clients connect, instead of the API's own address.
listen: {listen}

# Where `skewgate status` and Prometheus connect. This is the default.
admin:
  listen: 127.0.0.1:9900

# Without it, offers, pins and drains end with the process.
# state: /var/lib/skewgate/state.json

services:
  {service}:
    dialect: {dialect}
"""

_BACKENDS: Final = """\
    # One entry for each server. Each is asked on its own address, never through a load balancer.
    backends:
"""

_OFFER: Final = """\
    # What clients are told. The offer rises when every backend can serve it, and falls only when none can.
    # A ceiling keeps it low until an upgrade is complete.
    # offer:
    #   policy: guaranteed
    #   ceiling: "{ceiling}"
    #   stabilization: 5s
"""
