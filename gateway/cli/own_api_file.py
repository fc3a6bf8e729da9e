"""The file that `skewgate init` writes for an API of one's own: the dialect `custom`, with open questions.

It states what the servers' documents tell (`own_api`), each with where it was read. What they do not tell has
a default and a comment that begins with `Open:`. No version is written that no server named. What is returned
was loaded and has no problem; what probes shall read, the dialect has read in the documents at hand.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from gateway.cli.init_text import BACKENDS, HEAD, OFFER, scalar
from gateway.cli.own_api import Evidence, Findings, Place
from gateway.core.dialect import Advertisement, Dialect, ProbeRequest, ProbeResponse
from gateway.core.versions.version import CalendarDate, Named
from gateway.errors import SettingsError
from gateway.runtime.terminal import plain, span
from gateway.settings import load

WIDTH: Final = 110
MOST_UNVERSIONED: Final = 12
"""Paths that are proposed."""
OPEN: Final = "Open: "
LONGEST_LIST: Final = 80
"""Characters of all versions of one server. Of a longer list only the ends are shown."""
DEFAULT_HEADER: Final = "API-Version"

Seen: TypeAlias = Sequence[Mapping[str, ProbeResponse]]
"""The responses of each server, by path."""


class Target(NamedTuple):
    """What the operator named."""

    urls: Sequence[str]
    service: str
    listen: str
    ca: str | None


def written(target: Target, findings: Findings, seen: Seen) -> str | None:
    """The file. None: nothing tells any version. Raises `SettingsError` for a bad option."""
    problem = None
    for evidence in findings.evidence:
        for probed in (True, False) if evidence.learn or evidence.response else (False,):
            served = _declared(evidence)
            text = "".join(_File(target, findings, evidence, probed=probed).pieces(served))
            loaded = load(text, filename="init", environ={})
            if loaded.problems:
                problem = problem or "; ".join(dict.fromkeys(each.message for each in loaded.problems))
                continue
            [service] = loaded.require().services
            if not probed:
                return text
            spans = [_span(service.dialect, responses) for responses in seen]
            if any(spans):
                return "".join(_File(target, findings, evidence, probed=True).pieces(spans))
    if problem is not None:
        raise SettingsError(problem)
    return None


def questions(text: str) -> int:
    """Open questions in a file."""
    return text.count(f"# {OPEN}")


def _span(dialect: Dialect, responses: Mapping[str, ProbeResponse]) -> str:
    """What a probe of one server reads, from its oldest to its newest version; empty: nothing."""
    step = dialect.probe((), None)
    response = responses.get(step.path) if isinstance(step, ProbeRequest) else None
    found = None if response is None else dialect.probe((response,), None)
    if not isinstance(found, Advertisement) or not found.versions:
        return ""
    listed = found.versions.format(dialect.scheme)
    ends = found.versions.lowest, found.versions.highest
    return listed if len(listed) <= LONGEST_LIST else span(*map(dialect.scheme.format, ends))


def _declared(evidence: Evidence) -> list[str]:
    """The versions of each server, as a backend declares them."""
    found = [evidence.notation.canonical(texts) for texts in evidence.texts]
    if evidence.is_range and evidence.notation.scheme.contiguous:
        return ["-".join(dict.fromkeys(texts)) for texts in found]
    return [", ".join(texts) for texts in found]


class _File:
    """The pieces of one file, made of one evidence. `probed`: the versions are learned from it; otherwise
    they are declared at the backends."""

    def __init__(self, target: Target, findings: Findings, evidence: Evidence, *, probed: bool) -> None:
        self.target, self.findings, self.evidence, self.probed = target, findings, evidence, probed
        self.notation = evidence.notation
        key = self.notation.scheme.key
        self.place = next(
            (
                place
                for place in findings.places
                if place.notation is None or place.notation.scheme.key == key
            ),
            None,
        )
        others = (place for place in findings.places if place.notation and place.notation.scheme.key != key)
        self.other = next(others, None)

    def pieces(self, served: Sequence[str]) -> Iterator[str]:
        """The file. `served`: what each server named, empty for nothing."""
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
            6,
            f"{OPEN}how do the servers refuse a version? Without `refusal` the gateway answers 400 with an"
            " RFC 9457 problem document.",
        )
        if not self.probed:
            yield from self._about_declared()
        yield BACKENDS
        for url, named in zip(target.urls, served, strict=True):
            yield from self._backend(url, named)
        highest = [text for texts in self.evidence.texts for text in texts]
        yield OFFER.format(ceiling=self.notation.canonical(highest)[-1])

    def _default_version(self) -> Iterator[str]:
        known = self.notation.canonical([text for texts in self.evidence.texts for text in texts])
        header, value = self.findings.served or ("", "")
        named = self.notation.canonical([value, f"{self.notation.before}{value}"])
        if self.place is not None and self.place.kind == "path":
            below = f" below {self.place.text}" if self.place.text else ""
            yield from _comment(
                4,
                f"{OPEN}what does a request without a version get? Here a path{below} without one is refused,"
                " except below `unversioned`. `minimum` and `maximum` write the oldest or the newest on offer"
                " into a path that has room for it.",
            )
            yield "    default_version: refused\n"
        elif len(known) > 1 and named == known[-1:]:
            yield from _comment(
                4,
                f"{OPEN}what does a request without a version get? {header} of such a response named"
                f" {named[0]}, the newest. Clients without one move with each upgrade; `minimum` gives them"
                " the oldest on offer, `refused` refuses them; or name a version.",
            )
            yield "    default_version: maximum\n"
        else:
            yield from _comment(
                4,
                f"{OPEN}what does a request without a version get? `minimum` is the oldest on offer,"
                " `maximum` the newest, `refused` refuses it; or name a version.",
            )
            yield "    default_version: minimum\n"

    def _places(self) -> Iterator[str]:
        place = self.place
        if place is None:
            yield from _comment(
                6,
                f"{OPEN}where does a request carry its version? No document tells it; this header is the"
                " default. Others: `query: NAME`, `path: /v{version}`, `parameter: NAME` of a media type.",
            )
            place = Place("header", DEFAULT_HEADER, None, "")
        elif place.is_guess:
            yield from _comment(6, f"{OPEN}do requests carry the version here? Only {place.why} is known.")
        else:
            yield from _comment(6, f"According to {place.why}.")
        if self.other is not None:
            where = f"{self.other.kind} {self.other.text}".strip()
            yield from _comment(
                6,
                f"{OPEN}is there a second version? That of the {where} has another form, according to"
                f" {self.other.why}. It is left as it is.",
            )
        if place.others:
            yield from _comment(
                6,
                f"{OPEN}versions stand below {', '.join(place.others)}, too. What is not below the path here"
                " goes to any server, at the version that the client wrote: give each a service of its own,"
                " with `match.path`.",
            )
        before = (place.notation or self.notation).before
        if place.kind == "path":
            yield f"      places:\n        - path: {scalar(f'{place.text}/{before}{{version}}')}\n"
            return
        if place.notation is None and before:
            yield from _comment(
                6, f"{OPEN}do requests spell it with `{before}`? Otherwise remove `spelling`."
            )
        yield f"      places:\n        - {place.kind}: {scalar(place.text)}\n"
        if before:
            yield f"          spelling: {scalar(f'{before}{{version}}')}\n"

    def _scheme(self) -> Iterator[str]:
        scheme = self.notation.scheme
        texts = list(dict.fromkeys(text for named in self.evidence.texts for text in named))
        quoted = ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")
        yield from _comment(6, f"How a version is written: read from {self.evidence.where}: {quoted}.")
        yield f"      scheme: {scheme.name}\n"
        if isinstance(scheme, CalendarDate) and not scheme.day:
            yield "      date_form: month\n"
        if isinstance(scheme, Named):
            yield from _comment(6, f"{OPEN}are these all names, oldest first? No other one is understood.")
            yield "      names:\n"
            yield from (f"        - {scalar(name)}\n" for name in scheme.names)

    def _learn(self) -> Iterator[str]:
        learn = self.evidence.learn
        if not self.probed or learn is None:
            return
        yield from _comment(6, "Probes read here what a server serves, so the gateway notices upgrades.")
        yield "      learn:\n"
        for name, value in learn.items():
            if name == "statuses":
                yield f"        statuses:\n          - {value}\n"
            else:
                yield f"        {name}: {scalar(str(value))}\n"
        content_type = str(learn.get("content_type", "json"))
        if self.evidence.response is None and not content_type.endswith("json"):
            yield from _comment(
                6,
                f"{OPEN}clients that read this document see the versions of one server. It cannot be"
                f" rewritten, because its type is {content_type}.",
            )
            yield "      documents: []\n"

    def _response(self) -> Iterator[str]:
        if self.probed and self.evidence.response is not None:
            yield from _comment(6, "Response headers with versions: the gateway writes the offer into them.")
            yield "      reply:\n"
            for name, value in self.evidence.response.items():
                yield f"        {name}: {scalar(value)}\n"
        elif self.findings.served is not None and self.notation.canonical([self.findings.served[1]]):
            header = self.findings.served[0]
            yield from _comment(
                6,
                f"{OPEN}is {header} on a response the version that was served? If so, the gateway can verify"
                f" it: `reply: {{served: {header}}}`.",
            )

    def _unversioned(self) -> Iterator[str]:
        if self.place is None or self.place.kind != "path":
            return
        learned = self.evidence.learn["path"] if self.probed and self.evidence.learn else None
        prefix = f"{self.place.text}/".lower()
        paths = [
            path for path in self.findings.unversioned if path != learned and path.lower().startswith(prefix)
        ]
        below = f" below {self.place.text}" if self.place.text else ""
        yield from _comment(
            6,
            f"{OPEN}which other paths{below} have no version? They are listed here, and everything below"
            " them.",
        )
        if paths:
            yield "      unversioned:\n"
            yield from (f"        - {scalar(path)}\n" for path in paths[:MOST_UNVERSIONED])
        else:
            yield f"      # unversioned:\n      #   - {self.place.text}/health\n"
        if len(paths) > MOST_UNVERSIONED:
            yield from _comment(6, f"And {len(paths) - MOST_UNVERSIONED} more, in the OpenAPI document.")

    def _about_declared(self) -> Iterator[str]:
        doubt = "" if self.evidence.certain else " It may be one of many, or the release of the software."
        yield from _comment(
            4,
            f"{OPEN}does each server serve these versions, and no others? They are from"
            f" {self.evidence.where}.{doubt} The gateway does not probe for them: it notices no"
            " upgrade. If a document shows them, write `learn` instead of `versions`.",
        )

    def _backend(self, url: str, named: str) -> Iterator[str]:
        if named:
            yield f"      # served {named} when this was written\n"
        else:
            yield f"      # {_NO_VERSION}\n"
        is_unknown = not named and not self.probed  # a backend has to declare its versions
        mark = "# " if is_unknown else ""
        yield f"      {mark}- url: {scalar(url)}\n"
        if self.target.ca:
            yield f"      {mark}  tls:\n      {mark}    ca: {scalar(self.target.ca)}\n"
        if is_unknown:
            yield '      #   versions: ""\n'
        elif not self.probed:
            yield f'        versions: "{named}"\n'


_NO_VERSION: Final = "named no versions when this was written"


def _comment(indent: int, text: str) -> Iterator[str]:
    """A comment of one paragraph. Texts of servers in it cannot end it."""
    for line in textwrap.wrap(
        plain(text), WIDTH - indent - 2, break_long_words=False, break_on_hyphens=False
    ):
        yield f"{' ' * indent}# {line}\n"
