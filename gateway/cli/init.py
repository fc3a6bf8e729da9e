"""`skewgate init --from URL`: writes a commented configuration from the responses of a running API.

    GET / of each server -> which dialects recognize it -> a probe by each of them -> the file of the best one
                                                              or, if none reads any version: `own_api`

Every dialect probes the API as the gateway would. The dialect with the fewest options that reads versions is
taken. If none does, the API is described with the dialect `custom` from its documents. The file (`init_file`)
is a start: it shows what can be added, and `check` accepts it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from gateway.cli import init_file, offline, own_api
from gateway.cli.command import file_option, verb
from gateway.cli.init_file import InitOptions
from gateway.cli.own_api import Documents
from gateway.controlplane.probe_client import ProbeClient
from gateway.controlplane.resolver import Resolver
from gateway.core.dialect import Dialect, ProbeFault, ProbeResponse
from gateway.core.fleet.service import Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.dialects import discover
from gateway.errors import AdminError, SettingsError
from gateway.runtime import process
from gateway.runtime.terminal import plain, print_error
from gateway.settings import Settings, load

DETAILS: Final = (
    "URL is the address of an API server, http://HOST:PORT or https://HOST:PORT, not of a load balancer."
    " Give --from once for each backend. For a running OpenStack or Chef server, the dialect is detected."
    " Any other API gets the dialect `custom`, with the versions found in its response headers and at /,"
    " /versions, /version, /api/versions and /openapi.json. Comments that begin with `Open:` ask what was"
    " not found. The file is printed, or written to --to. Nothing else is changed."
)
NO_CONNECTION: Final = "no connection to "
LISTEN: Final = "127.0.0.1:8080"
CUSTOM: Final = "custom"
OWN_SERVICE: Final = "api"
NO_OPTIONS: Final[Mapping[str, str]] = {}
DEADLINE: Final = 10.0
"""Seconds for fetching all documents of all servers. Later responses are ignored."""


@verb("init", DETAILS)
@click.option(
    "--from", "urls", metavar="URL", required=True, multiple=True, help="API server; can be repeated"
)
@click.option("--dialect", metavar="NAME", help="use this dialect instead of detecting it")
@click.option(
    "--service-type", metavar="TYPE", help="OpenStack service type, such as volume, instead of detecting it"
)
@click.option("--service", metavar="NAME", help="name of the service; default: the name of the dialect")
@click.option(
    "--listen", metavar="ADDRESS", default=LISTEN, show_default=True, help="address for clients to connect to"
)
@click.option(
    "--ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="https: CA of the servers' certificates",
)
@file_option("--to", text="file to write; it must not exist yet")
def init(
    *,
    urls: Sequence[str],
    dialect: str | None,
    service_type: str | None,
    service: str | None,
    listen: str,
    ca: str | None,
    to: Path | None,
) -> int:
    """Detect a running API and write a configuration of the gateway for it."""
    known = discover()
    if dialect is not None and dialect not in known:
        raise SettingsError(f"there is no dialect {dialect!r}; there are: {', '.join(known)}")
    candidates = _candidates(known, dialect, service_type)
    target = InitOptions(urls, service or OWN_SERVICE, listen, ca)
    settings = _probe_settings(target, dict.fromkeys(_most_specific_first(known), NO_OPTIONS))
    if dialect == CUSTOM:
        return _write(_own_api(target, settings, "no versions found"), to)
    seen = process.run_in_loop(_fetch_documents(settings.services[0], ["/"]))
    options, unsure = _recognize(urls, {name: known[name] for name in candidates}, seen)
    if service_type is not None:
        options, unsure = {name: {"service_type": service_type} for name in candidates}, {}
    snapshot = process.run_in_loop(offline.probed(_probe_settings(target, options, unsure)))
    chosen, faults = (dialect, "") if dialect is not None else _choose(urls, snapshot, unsure)
    if chosen is None:
        if service_type is not None:
            raise AdminError(f"{faults}\nGive one with --dialect.")
        return _write(_own_api(target, settings, faults), to)
    view = snapshot.views[chosen]
    target = target._replace(service=service or options[chosen].get("service_type", chosen))
    text = "".join(init_file.of_dialect(target, view, options[chosen]))
    _require(text)
    for url, member in zip(urls, view.members.all, strict=True):
        if member.advertisement is None:
            print_error(f"warning: {plain(url)}: {plain(member.probe_error or 'no response')}")
    return _write(text, to)


def _write(text: str, to: Path | None) -> int:
    """Print the new configuration, or write it to the file `to`. Raises `SettingsError`."""
    if to is None:
        print(text, end="")
        return 0
    try:
        with to.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise SettingsError(f"{to} already exists; it was not changed") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(f"{to} cannot be written: {reason}") from None
    print(f"{to}: written; next: skewgate check {to} && skewgate run -c {to}")
    return 0


def _candidates(
    known: Mapping[str, type[Dialect]], dialect: str | None, service_type: str | None
) -> Sequence[str]:
    """Return the dialects to try with an API, in order. Raises `SettingsError` for contradicting options."""
    candidates = _most_specific_first(known) if dialect is None else [dialect]
    if service_type is None:
        return candidates
    fitting = [name for name in candidates if _has_option(known[name], "service_type")]
    if dialect is not None and not fitting:
        raise SettingsError(f"the dialect {dialect} has no service types; remove --service-type")
    return fitting


def _has_option(dialect: type[Dialect], option: str) -> bool:
    return any(field.name == option for field in dataclasses.fields(dialect.Options))


def _most_specific_first(known: Mapping[str, type[Dialect]]) -> list[str]:
    """Return the dialects without required options, those with the fewest options first."""
    # The more a dialect has to be told, the more APIs it fits, and the less it proves to read one.
    usable = [
        name
        for name, dialect in known.items()
        if not any(
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            for field in dataclasses.fields(dialect.Options)
        )
    ]
    return sorted(usable, key=lambda name: (len(dataclasses.fields(known[name].Options)), name))


def _recognize(
    urls: Sequence[str], candidates: Mapping[str, type[Dialect]], seen: Sequence[Documents]
) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """Return the options for probing with each dialect, and the faults of dialects that recognize the
    documents but lack an option. Raises `AdminError` if the servers need different options."""
    options: dict[str, Mapping[str, str]] = {}
    unsure: dict[str, str] = {}
    for name, dialect in candidates.items():
        answers = [
            (url, dialect.recognize(documents["/"]))
            for url, documents in zip(urls, seen, strict=True)
            if "/" in documents
        ]
        certain = {url: each for url, each in answers if isinstance(each, Mapping)}
        if len({*map(str, certain.values())}) > 1:
            lines = (f"\n  {plain(url)}: {', '.join(each.values())}" for url, each in certain.items())
            raise AdminError(
                f"these servers belong to different services; run init for each:{''.join(lines)}"
            )
        faults = [each.detail for _, each in answers if isinstance(each, ProbeFault)]
        if certain or not faults:
            options[name] = next(iter(certain.values()), NO_OPTIONS)
        else:
            unsure[name] = faults[0]
        if len(candidates) == 1 and answers and not certain and _has_option(dialect, "service_type"):
            unsure.setdefault(name, "does not name the service type")
    return options, unsure


def _choose(urls: Sequence[str], snapshot: Snapshot, unsure: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the first dialect that found versions; or None, and the reason why no dialect did."""
    reasons = []
    errors = set()
    for name, members in snapshot.fleet.member_sets.items():
        found = [member.advertisement for member in members.all]
        if any(each is not None and each.versions and not each.legacy for each in found):
            return name, ""
        error = next((member.probe_error for member in members.all if member.probe_error), "no versions")
        reasons.append(f"\n  {name}: {plain(error)}")
        errors.add(error)
    if len(errors) == 1 and all(error.startswith(NO_CONNECTION) for error in errors):
        raise AdminError(f"no server responds at {', '.join(map(plain, urls))}: {plain(errors.pop())}")
    if unsure:
        raise AdminError(_unnamed(urls, unsure))
    return None, f"no dialect finds versions at {', '.join(map(plain, urls))}:{''.join(reasons)}"


def _unnamed(urls: Sequence[str], unsure: Mapping[str, str]) -> str:
    """Format the error for an API whose service type no document shows."""
    [(name, why), *_] = unsure.items()
    where = ", ".join(map(plain, urls))
    return f"{where}: the dialect {name} fits, but the document at / {why}.\nGive it with --service-type."


def _probe_settings(
    target: InitOptions, dialects: Mapping[str, Mapping[str, str]], unsure: Mapping[str, str] = NO_OPTIONS
) -> Settings:
    """Return settings with a service for each dialect, all with the same backends. Dialects that lack an
    option are left out. Raises `SettingsError` if none is left, and `AdminError` if one is `unsure`."""
    backends = [
        {"name": f"server-{number}", "url": url, **({"tls": {"ca": target.ca}} if target.ca else {})}
        for number, url in enumerate(target.urls)
    ]
    found: list[Settings] = []
    refused: list[str] = []
    for name, options in dialects.items():
        service = {
            "dialect": name,
            name: dict(options),
            "match": {"host": f"{name}.invalid"},
            "backends": backends,
        }
        text = json.dumps({"listen": LISTEN, "services": {name: service}}, indent=1)  # JSON is YAML
        try:
            found.append(_require(text))
        except SettingsError as problem:
            refused.append(str(problem))
    if found:
        return dataclasses.replace(found[0], services=tuple(each.services[0] for each in found))
    if unsure:
        raise AdminError(_unnamed(target.urls, unsure))
    raise SettingsError(min(refused, key=len))


def _require(text: str) -> Settings:
    """Load a generated configuration. Its problems come from the options of `init`: `SettingsError`."""
    loaded = load(text, filename="init", environ={})
    if loaded.errors:
        raise SettingsError("; ".join(dict.fromkeys(problem.message for problem in loaded.errors)))
    return loaded.require()


async def _fetch_documents(service: Service, paths: Sequence[str]) -> Sequence[Documents]:
    """Fetch these paths from each backend of a service, in the order of the backends. As for probes,
    redirects are not followed and the size is limited."""
    found: list[dict[str, ProbeResponse]] = [{} for _ in service.backends]
    async with Resolver() as resolver:
        resolver.retarget((service,))
        client = ProbeClient(resolver.resolve)

        async def request(number: int) -> None:
            for path in paths:
                response = await client.fetch(path, service, service.backends[number])
                if not isinstance(response, ProbeFault):
                    found[number][path] = response
                elif response.reason in {"connect", "tls"}:
                    return  # the other paths have the same address

        try:
            async with asyncio.timeout(DEADLINE):
                await asyncio.gather(*map(request, range(len(found))))
        except TimeoutError:
            pass  # what has arrived by now is used
    return found


def _own_api(target: InitOptions, settings: Settings, faults: str) -> str:
    """Write the file for an API that no dialect knows. `faults`: why none does. Raises `AdminError` if
    nothing shows a version: none is made up."""
    backends = settings.services[0].backends
    seen = process.run_in_loop(_fetch_documents(settings.services[0], own_api.PATHS))
    findings = own_api.infer([backend.authority for backend in backends], seen)
    text = init_file.of_own_api(target, findings, seen)
    if text is None:
        raise AdminError(faults + _nothing_found(target.urls, seen))
    for url, documents in zip(target.urls, seen, strict=True):
        if not documents:
            print_error(f"warning: {plain(url)}: no response")
    print_error(
        f"warning: no dialect fits this API: the file has {init_file.questions(text)} comments that begin"
        f" with `{init_file.OPEN.strip()}`; answer these questions before clients connect"
    )
    return text


def _nothing_found(urls: Sequence[str], seen: Sequence[Documents]) -> str:
    """Format the error for an API without any version: the responses, and what to write by hand."""
    lines = []
    for url, documents in zip(urls, seen, strict=True):
        answers = (
            f"{path} {documents[path].status if path in documents else 'no usable response'}"
            for path in own_api.PATHS
        )
        lines.append(f"\n  {plain(url)}: {', '.join(answers)}")
    return (
        f"\nNo versions found in documents or response headers:{''.join(lines)}\n"
        'If you know them, write `dialect: custom` and `versions: "1-3"` for each backend: see "From a'
        ' version header to a running gateway" in docs/dialects.md. If a dialect fits, give --dialect NAME.'
    )
