"""`skewgate init --from URL`: a configuration with comments, made from the answers of an API that runs.

    GET / of each server -> which dialects recognize it -> a probe by each of them -> the file of the best one
                                                              or, if none reads any version: `own_api`

Every dialect probes the API as the gateway would. The one that reads its versions, and needs to be told
least, is taken. Where none does, the API is described with the dialect `custom`, from what its documents
tell. What is written (`init_file`) is a beginning: it says what can be added, and `check` finds nothing wrong
with it.
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
    "URL is the address of one server of the API, http://HOST:PORT or https://HOST:PORT, not that of a load"
    " balancer; several make several backends. An API that no dialect knows is described with the dialect"
    " custom, from its documents at /, /versions, /version, /api/versions and /openapi.json and its response"
    " headers; comments that begin with `Open:` ask what these do not tell. The file goes to standard output,"
    " or to --to. Nothing is changed anywhere."
)
NO_CONNECTION: Final = "no connection to "
LISTEN: Final = "127.0.0.1:8080"
CUSTOM: Final = "custom"
OWN_SERVICE: Final = "api"
NO_OPTIONS: Final[Mapping[str, str]] = {}
DEADLINE: Final = 10.0
"""Seconds for all documents of all servers. What comes later is left out."""


@verb("init", DETAILS)
@click.option(
    "--from", "urls", metavar="URL", required=True, multiple=True, help="a server; may be given several times"
)
@click.option("--dialect", metavar="NAME", help="do not find out, use this one")
@click.option("--service-type", metavar="TYPE", help="the OpenStack service, such as volume: do not find out")
@click.option("--service", metavar="NAME", help="the name of the service; default: that of the dialect")
@click.option("--listen", metavar="ADDRESS", default=LISTEN, show_default=True, help="where clients connect")
@click.option(
    "--ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="https: the CA of the servers' certificates",
)
@file_option("--to", text="write this file, which must not exist")
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
    """Write the file. Raises `SettingsError` for a bad option and `AdminError` if no dialect fits."""
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
            raise AdminError(f"{faults}\nName one with --dialect.")
        return _write(_own_api(target, settings, faults), to)
    view = snapshot.views[chosen]
    target = target._replace(service=service or options[chosen].get("service_type", chosen))
    text = "".join(init_file.of_dialect(target, view, options[chosen]))
    _require(text)
    for url, member in zip(urls, view.pool.members, strict=True):
        if member.advertisement is None:
            print_error(f"warning: {plain(url)}: {plain(member.probe_error or 'no answer')}")
    return _write(text, to)


def _write(text: str, to: Path | None) -> int:
    """Print the file, or write it. Raises `SettingsError`."""
    if to is None:
        print(text, end="")
        return 0
    try:
        with to.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise SettingsError(f"{to} exists already and is left as it is") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(f"{to} cannot be written: {reason}") from None
    print(f"{to}: written; next: skewgate check {to} && skewgate run -c {to}")
    return 0


def _candidates(
    known: Mapping[str, type[Dialect]], dialect: str | None, service_type: str | None
) -> Sequence[str]:
    """The dialects to try, in their order. Raises `SettingsError` for options that do not go together."""
    candidates = _most_specific_first(known) if dialect is None else [dialect]
    if service_type is None:
        return candidates
    fitting = [name for name in candidates if _has_option(known[name], "service_type")]
    if dialect is not None and not fitting:
        raise SettingsError(f"the dialect {dialect} has no service types: leave out --service-type")
    return fitting


def _has_option(dialect: type[Dialect], option: str) -> bool:
    return any(field.name == option for field in dataclasses.fields(dialect.Options))


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


def _recognize(
    urls: Sequence[str], candidates: Mapping[str, type[Dialect]], seen: Sequence[Documents]
) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """The options of each dialect with which the servers are probed; and of those that know the documents but
    not their options, why. Raises `AdminError` where servers tell different options."""
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
            raise AdminError(f"these servers are of different services, each needs its own:{''.join(lines)}")
        faults = [each.detail for _, each in answers if isinstance(each, ProbeFault)]
        if certain or not faults:
            options[name] = next(iter(certain.values()), NO_OPTIONS)
        else:
            unsure[name] = faults[0]
        if len(candidates) == 1 and answers and not certain and _has_option(dialect, "service_type"):
            unsure.setdefault(name, "names none of its services")
    return options, unsure


def _choose(urls: Sequence[str], snapshot: Snapshot, unsure: Mapping[str, str]) -> tuple[str | None, str]:
    """The first service whose dialect found versions. None: no dialect knows the API, and the text says why.
    Raises `AdminError`."""
    reasons = []
    errors = set()
    for name, pool in snapshot.fleet.pools.items():
        found = [member.advertisement for member in pool.members]
        if any(each is not None and each.versions and not each.legacy for each in found):
            return name, ""
        error = next((member.probe_error for member in pool.members if member.probe_error), "no versions")
        reasons.append(f"\n  {name}: {plain(error)}")
        errors.add(error)
    if len(errors) == 1 and all(error.startswith(NO_CONNECTION) for error in errors):
        raise AdminError(f"no server answers at {', '.join(map(plain, urls))}: {plain(errors.pop())}")
    if unsure:
        raise AdminError(_unnamed(urls, unsure))
    return None, f"no dialect finds versions at {', '.join(map(plain, urls))}:{''.join(reasons)}"


def _unnamed(urls: Sequence[str], unsure: Mapping[str, str]) -> str:
    """What a dialect has to be told, because no document tells it."""
    [(name, why), *_] = unsure.items()
    where = ", ".join(map(plain, urls))
    return (
        f"{where}: an API for the dialect {name}, but the document at / {why}\nName it with --service-type."
    )


def _probe_settings(
    target: InitOptions, dialects: Mapping[str, Mapping[str, str]], unsure: Mapping[str, str] = NO_OPTIONS
) -> Settings:
    """One service for each of the dialects, with its options and the same backends. A dialect that must be
    told more is left out. Raises `SettingsError` if none is left, as with a bad URL, and `AdminError` if one
    is `unsure`."""
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
    """The settings of a text made here: what is wrong in it came from an option. Raises `SettingsError`."""
    loaded = load(text, filename="init", environ={})
    if loaded.errors:
        raise SettingsError("; ".join(dict.fromkeys(problem.message for problem in loaded.errors)))
    return loaded.require()


async def _fetch_documents(service: Service, paths: Sequence[str]) -> Sequence[Documents]:
    """What the backends of a service respond at these paths, in the order of the backends. Sent as probes
    are: no redirect, bounded documents."""
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
            pass  # what has come by now is looked at
        finally:
            await client.close()
    return found


def _own_api(target: InitOptions, settings: Settings, faults: str) -> str:
    """The file for an API that no dialect knows. Raises `AdminError` if nothing tells a version of it: none
    is made up. `faults`: why no dialect knows it."""
    backends = settings.services[0].backends
    seen = process.run_in_loop(_fetch_documents(settings.services[0], own_api.PATHS))
    findings = own_api.infer([backend.authority for backend in backends], seen)
    text = init_file.of_own_api(target, findings, seen)
    if text is None:
        raise AdminError(faults + _nothing_found(target.urls, seen))
    for url, documents in zip(target.urls, seen, strict=True):
        if not documents:
            print_error(f"warning: {plain(url)}: no answer")
    print_error(
        f"warning: no dialect knows this API: {init_file.questions(text)} comments that begin with"
        f" `{init_file.OPEN.strip()}` ask what its documents do not tell; answer them before clients connect"
    )
    return text


def _nothing_found(urls: Sequence[str], seen: Sequence[Documents]) -> str:
    """What was looked at, and what to write without `init`."""
    lines = []
    for url, documents in zip(urls, seen, strict=True):
        answers = (
            f"{path} {documents[path].status if path in documents else 'no usable answer'}"
            for path in own_api.PATHS
        )
        lines.append(f"\n  {plain(url)}: {', '.join(answers)}")
    return (
        f"\nNo document and no response header shows any version of an API of your own:{''.join(lines)}\n"
        'If you know them, declare them with `dialect: custom` and `versions: "1-3"` at each backend: see'
        ' "From a version header to a running gateway" in docs/dialects.md. If a dialect fits, name it:'
        " --dialect NAME."
    )
