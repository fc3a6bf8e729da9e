"""The configuration files that `skewgate init` writes: for an API with a dialect, and for an unknown one.

An unknown API gets the dialect `custom`, with what its documents show (`own_api`) and where they show it.
What they do not show gets a default and a comment that begins with `Open:`. No version is written that no
server named. Every returned file has been loaded without a problem. This module sends no request.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.cli.own_api import ApiFindings, Documents, Evidence, VersionLocation
from gateway.core.dialect import Advertisement, Dialect, ProbeRequest
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import CalendarDate, Named
from gateway.errors import SettingsError
from gateway.runtime.terminal import plain, span
from gateway.settings import load

HEAD: Final = """\
# Written by `skewgate init` from the responses of a running API. `skewgate check` validates it, and
# `skewgate schema` describes every key.

# Address for clients, instead of the API's own.
listen: {listen}

# Address for `skewgate status` and Prometheus. This is the default.
admin:
  listen: 127.0.0.1:9900

# File in which offers, pins and drains survive a restart.
# state: /var/lib/skewgate/state.json

services:
  {service}:
    dialect: {dialect}
"""
BACKENDS: Final = """\
    # One entry for each server, with its own address and not that of a load balancer.
    backends:
"""
OFFER: Final = """\
    # The versions that clients are offered. A version is added once every backend serves it, and removed only
    # when none does. A ceiling limits the offer until an upgrade is complete.
    # offer:
    #   policy: guaranteed
    #   ceiling: "{ceiling}"
    #   stabilization: 5s
"""
WIDTH: Final = 110
MOST_UNVERSIONED: Final = 12
"""Maximum number of paths without a version that the written configuration proposes."""
OPEN: Final = "Open: "
LONGEST_LIST: Final = 80
"""Maximum length of a server's version list in characters; a longer one is shown as a range."""
DEFAULT_HEADER: Final = "API-Version"


class InitOptions(NamedTuple):
    """The options of `init` that go into the written configuration."""

    urls: Sequence[str]
    service: str
    listen: str
    ca: str | None


def scalar(text: str) -> str:
    """Write a text as a YAML scalar, in quotation marks if it needs them."""
    plain_text = text and not any(sign in text for sign in "#{}[],&*!|>'\"%@` \t\\") and ": " not in text
    return text if plain_text else json.dumps(text, ensure_ascii=False)


def _backend(url: str, served: str, ca: str | None, *, declares: bool = False) -> Iterator[str]:
    """Write the entry of a backend. `served`: versions that it named, or empty. `declares`: write them as
    `versions`; without versions the entry is commented out."""
    yield f"      # {f'served {served}' if served else 'showed no versions'} when this was written\n"
    is_unknown = declares and not served
    mark = "# " if is_unknown else ""
    yield f"      {mark}- url: {scalar(url)}\n"
    if ca:
        yield f"      {mark}  tls:\n      {mark}    ca: {scalar(ca)}\n"
    if is_unknown:
        yield '      #   versions: ""\n'
    elif declares:
        yield f'        versions: "{served}"\n'


def of_dialect(target: InitOptions, view: ServiceView, options: Mapping[str, str]) -> Iterator[str]:
    """Write the file for an API with a dialect, in pieces. `options`: the dialect's needed options."""
    dialect = view.service.dialect
    yield HEAD.format(listen=scalar(target.listen), service=target.service, dialect=dialect.name)
    yield from _options(dialect, options)
    yield BACKENDS
    highest = []
    for url, member in zip(target.urls, view.members.all, strict=True):
        found = member.advertisement
        named = ""
        if found is not None and found.versions:
            named = _ends(found.versions, dialect)
            highest.append(found.versions.highest)
        yield from _backend(url, named, target.ca)
    if highest:
        yield OFFER.format(ceiling=dialect.scheme.format(max(highest)))


def _ends(versions: VersionSet, dialect: Dialect) -> str:
    return span(dialect.scheme.format(versions.lowest), dialect.scheme.format(versions.highest))


def _options(dialect: Dialect, known: Mapping[str, str]) -> Iterator[str]:
    """Write the dialect's needed options, and the optional ones as comments with their defaults."""
    options = [
        field for field in dataclasses.fields(dialect.Options) if isinstance(field.default, str | bool)
    ]
    if known or options:
        yield f"    {'' if known else '# '}{dialect.name}:\n"
    for name, value in known.items():
        yield f"      {name}: {scalar(value)}\n"
    for field in options:
        sentence = str(field.metadata.get("description", "")).partition(". ")[0].rstrip(".")
        default = (
            str(field.default).lower() if isinstance(field.default, bool) else scalar(str(field.default))
        )
        indent = "      # " if known else "    #   "
        yield f"{indent}# {sentence}.\n{indent}{field.name}: {default}\n"


def of_own_api(target: InitOptions, findings: ApiFindings, seen: Sequence[Documents]) -> str | None:
    """Write the file for an unknown API; None if nothing shows any version. `seen`: the responses of each
    server. Raises `SettingsError` for a bad option."""
    problem = None
    for evidence in findings.evidence:
        for probed in (True, False) if evidence.learn or evidence.response else (False,):
            file = _OwnApiFile(target, findings, evidence, probed=probed)
            text = "".join(file.pieces(_declared(evidence)))
            loaded = load(text, filename="init", environ={})
            if loaded.problems:
                problem = problem or "; ".join(dict.fromkeys(each.message for each in loaded.problems))
                continue
            if not probed:
                return text
            [service] = loaded.require().services
            served = [_probed(service.dialect, responses) for responses in seen]
            if any(served):
                return "".join(file.pieces(served))
    if problem is not None:
        raise SettingsError(problem)
    return None


def questions(text: str) -> int:
    """Count the questions that a written configuration leaves open for the operator."""
    return text.count(f"# {OPEN}")


def _probed(dialect: Dialect, responses: Documents) -> str:
    """Return the versions that a probe reads from these responses; empty if none."""
    step = dialect.probe((), None)
    response = responses.get(step.path) if isinstance(step, ProbeRequest) else None
    found = None if response is None else dialect.probe((response,), None)
    if not isinstance(found, Advertisement) or not found.versions:
        return ""
    listed = found.versions.format(dialect.scheme)
    return listed if len(listed) <= LONGEST_LIST else _ends(found.versions, dialect)


def _declared(evidence: Evidence) -> list[str]:
    """Return the versions of each server in the form of the key `versions`."""
    found = [evidence.notation.canonical(texts) for texts in evidence.texts]
    if evidence.is_range and evidence.notation.scheme.contiguous:
        return ["-".join(dict.fromkeys(texts)) for texts in found]
    return [", ".join(texts) for texts in found]


class _OwnApiFile:
    """Writer of the file for an unknown API. `probed`: versions come from probes, not from `versions`."""

    def __init__(
        self, target: InitOptions, findings: ApiFindings, evidence: Evidence, *, probed: bool
    ) -> None:
        self.target, self.findings, self.evidence, self.probed = target, findings, evidence, probed
        self.notation = evidence.notation
        self.known = self.notation.canonical([text for texts in evidence.texts for text in texts])
        fitting: list[VersionLocation] = []
        others: list[VersionLocation] = []
        for place in findings.places:
            fits = place.notation is None or place.notation.scheme.key == self.notation.scheme.key
            (fitting if fits else others).append(place)
        self.place = fitting[0] if fitting else None
        self.other = others[0] if others else None
        self.below = ""
        if self.place is not None and self.place.kind == "path" and self.place.text:
            self.below = f" below {self.place.text}"

    def pieces(self, served: Sequence[str]) -> Iterator[str]:
        """Write the unknown API's configuration in pieces. `served`: versions of each server, or empty."""
        target = self.target
        yield HEAD.format(listen=scalar(target.listen), service=target.service, dialect="custom")
        yield from self._default_version()
        yield "    custom:\n"
        yield from self._places()
        yield from self._scheme()
        yield from self._learn()
        yield from self._response()
        yield from self._unversioned()
        yield from _comment(
            f"{OPEN}how do the servers refuse a version? Without `refusal` the gateway answers 400 with an"
            " RFC 9457 problem document.",
        )
        if not self.probed:
            yield from self._about_declared()
        yield BACKENDS
        for url, named in zip(target.urls, served, strict=True):
            yield from _backend(url, named, target.ca, declares=not self.probed)
        yield OFFER.format(ceiling=self.known[-1])

    def _default_version(self) -> Iterator[str]:
        header, value = self.findings.served or ("", "")
        named = self.notation.canonical([value, f"{self.notation.before}{value}"])
        if self.place is not None and self.place.kind == "path":
            default = "refused"
            text = (
                f"With `refused`, a path{self.below} without one is refused, except below `unversioned`."
                " `minimum` and `maximum` insert the oldest or the newest version on offer into the path."
            )
        elif len(self.known) > 1 and named == self.known[-1:]:
            default = "maximum"
            text = (
                f"The response header {header} named {named[0]}, the newest. With `maximum`, such clients"
                " move with each upgrade; `minimum` is the oldest on offer, `refused` refuses them; or name a"
                " version."
            )
        else:
            default = "minimum"
            text = (
                "`minimum` is the oldest on offer, `maximum` the newest, `refused` refuses it; or name a"
                " version."
            )
        yield from _comment(f"{OPEN}which version does a request without one get? {text}", indent=4)
        yield f"    default_version: {default}\n"

    def _places(self) -> Iterator[str]:
        place = self.place
        if place is None:
            yield from _comment(
                f"{OPEN}where do requests carry the version? No document shows it; this header is a guess."
                " Others: `query: NAME`, `path: /v{version}`, `parameter: NAME` of a media type.",
            )
            place = VersionLocation("header", DEFAULT_HEADER, None, "")
        elif place.is_guess:
            yield from _comment(f"{OPEN}do requests carry the version here? It is a guess from {place.why}.")
        else:
            yield from _comment(f"According to {place.why}.")
        if self.other is not None:
            where = f"{self.other.kind} {self.other.text}".strip()
            yield from _comment(
                f"{OPEN}is there a second version? The one in the {where} has another form, according to"
                f" {self.other.why}. It is not changed.",
            )
        if place.others:
            yield from _comment(
                f"{OPEN}there are versions below {', '.join(place.others)}, too. Requests to these paths go"
                " to any server, without negotiation: give each path its own service, with `match.path`.",
            )
        before = (place.notation or self.notation).before
        if place.kind == "path":
            yield f"      places:\n        - path: {scalar(f'{place.text}/{before}{{version}}')}\n"
            return
        if place.notation is None and before:
            yield from _comment(f"{OPEN}do requests spell it with `{before}`? Otherwise remove `spelling`.")
        yield f"      places:\n        - {place.kind}: {scalar(place.text)}\n"
        if before:
            yield f"          spelling: {scalar(f'{before}{{version}}')}\n"

    def _scheme(self) -> Iterator[str]:
        scheme = self.notation.scheme
        texts = list(dict.fromkeys(text for named in self.evidence.texts for text in named))
        quoted = ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")
        yield from _comment(f"The form of versions, from {self.evidence.where}: {quoted}.")
        yield f"      scheme: {scheme.name}\n"
        if isinstance(scheme, CalendarDate) and not scheme.day:
            yield "      date_form: month\n"
        if isinstance(scheme, Named):
            yield from _comment(f"{OPEN}are these all names, oldest first? Any other name is malformed.")
            yield "      names:\n"
            yield from (f"        - {scalar(name)}\n" for name in scheme.names)

    def _learn(self) -> Iterator[str]:
        learn = self.evidence.learn
        if not self.probed or learn is None:
            return
        yield from _comment("Probes read the served versions here, so the gateway notices upgrades.")
        yield "      learn:\n"
        for name, value in learn.items():
            if name == "statuses":
                yield f"        statuses:\n          - {value}\n"
            else:
                yield f"        {name}: {scalar(str(value))}\n"
        content_type = str(learn.get("content_type", "json"))
        if self.evidence.response is None and not content_type.endswith("json"):
            yield from _comment(
                f"{OPEN}clients that read this document see the versions of one server: the gateway cannot"
                f" rewrite it, because its type is {content_type}.",
            )
            yield "      documents: []\n"

    def _response(self) -> Iterator[str]:
        if self.probed and self.evidence.response is not None:
            yield from _comment("Response headers with versions, in which the gateway writes the offer.")
            yield "      reply:\n"
            for name, value in self.evidence.response.items():
                yield f"        {name}: {scalar(value)}\n"
        elif self.findings.served is not None and self.notation.canonical([self.findings.served[1]]):
            header = self.findings.served[0]
            yield from _comment(
                f"{OPEN}is the response header {header} the served version? If so, the gateway can verify it:"
                f" `reply: {{served: {header}}}`.",
            )

    def _unversioned(self) -> Iterator[str]:
        if self.place is None or self.place.kind != "path":
            return
        learned = self.evidence.learn["path"] if self.probed and self.evidence.learn else None
        prefix = f"{self.place.text}/".lower()
        paths = [
            path for path in self.findings.unversioned if path != learned and path.lower().startswith(prefix)
        ]
        yield from _comment(
            f"{OPEN}which paths{self.below} have no version? List them here; everything below them is"
            " included.",
        )
        if paths:
            yield "      unversioned:\n"
            yield from (f"        - {scalar(path)}\n" for path in paths[:MOST_UNVERSIONED])
        else:
            yield f"      # unversioned:\n      #   - {self.place.text}/health\n"
        if len(paths) > MOST_UNVERSIONED:
            yield from _comment(f"{len(paths) - MOST_UNVERSIONED} more are in the OpenAPI document.")

    def _about_declared(self) -> Iterator[str]:
        doubt = "" if self.evidence.certain else ", which may be one of many, or the software's release"
        yield from _comment(
            f"{OPEN}does each server serve exactly these versions? They are from {self.evidence.where}"
            f"{doubt}. They are not probed, so the gateway does not notice upgrades. If a document shows"
            " them, use `learn` instead of `versions`.",
            indent=4,
        )


def _comment(text: str, indent: int = 6) -> Iterator[str]:
    """Write a YAML comment of one paragraph. It has no control characters: no server's text can end it."""
    for line in textwrap.wrap(
        plain(text), WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False
    ):
        yield f"{' ' * indent}# {line}\n"
