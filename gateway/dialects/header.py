"""Any other API: where a version stands, how it is spelled, and what is said about it, from the configuration
alone.

The options (`_header_options`) are read once (`_header_reading`) into places, tellings and wording, on which
this dialect acts. What this must not do: know an API. There is no silent backend here: one that cannot say
what it serves has its versions declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from gateway.core.dialect import (
    NO_HEADERS,
    Absence,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Dialect,
    Failure,
    Links,
    Place,
    ProbeAnswer,
    ProbeFault,
    ProbeRequest,
    ProbeStep,
    Refusal,
    Refused,
    Served,
)
from gateway.core.message import Header as HeaderLine
from gateway.core.message import Reply, all_values, fold
from gateway.core.version import Version
from gateway.dialects._header_options import HeaderOptions
from gateway.dialects._header_places import LONGEST_TEXT, PathPlace, agreed
from gateway.dialects._header_reading import Parts, read_parts
from gateway.dialects._header_telling import MOST_READ
from gateway.dialects._json_path import dump, load

RESOURCE = Place("resource")
UNVERSIONED = Place("unversioned", negotiated=False)

_NO_VERSION = "!"
"""What `Place.carried` begins with where the target says something that is no version."""


class Header(Dialect):
    """One API, as its operator describes it."""

    name = "header"
    Options: ClassVar[type] = HeaderOptions
    silence_option: tuple[str, ...] = ("silence",)

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.scheme = parts.scheme
        self.silence = parts.silence
        self.match = parts.match
        self.vary: tuple[str, ...] = tuple(
            dict.fromkeys(name for place in parts.fields for name in place.names)
        )
        self.reads = self.owned_request = frozenset(map(fold, self.vary))
        self.owned_reply = frozenset(map(fold, parts.reply.names))
        self.rewrites_target = bool(parts.targets)
        self.can_be_asked = parts.learns or parts.reply.tells_range
        self._path = next((each for each in parts.targets if isinstance(each, PathPlace)), None)
        self._documents = {path for path, _ in parts.documents}
        self._prefixes = tuple(path + "/" for path in parts.unversioned if path != "/")
        self._carries_anywhere = any(each.sent for each in parts.fields)
        self._unversioned = frozenset(parts.unversioned)

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service. Raises `OptionsError` with everything that is wrong."""
        assert isinstance(options, HeaderOptions)
        made = cls(read_parts(options))
        made.own_paths = options.paths
        return made

    # -- 1. the request

    def place(self, method: str, path: str, query: str) -> Place:
        """A document, a path without versions, or a resource; with what the target says about its version."""
        if path in self._documents:
            return self._document(path)
        if path in self._unversioned or path.startswith(self._prefixes):
            return UNVERSIONED
        targets = self._parts.targets
        if not targets:
            return RESOURCE
        if len(targets) == 1:
            ask = targets[0].read(path, query)
        else:
            ask = agreed(each.read(path, query) for each in targets)
        if ask.kind is not AskKind.GARBLED and not self._can_carry(path):
            return UNVERSIONED
        carried = self._carried(ask)
        if self._documents and (plain := self.plain_path(path)) in self._documents:
            return self._document(plain)._replace(negotiated=True, carried=carried)
        return RESOURCE if carried is None else Place("resource", carried=carried)

    def _document(self, path: str) -> Place:
        return Place(f"document {path}", negotiated=False, document=True, versioned_only=True)

    def _carried(self, ask: Ask) -> str | None:
        """What a target says, in few words: clients choose it, and it is remembered."""
        match ask.kind:
            case AskKind.SILENT:
                return None
            case AskKind.EXACT:
                assert ask.version is not None
                return self.scheme.format(ask.version)
            case AskKind.LATEST:
                return ask.text
            case _:
                return _NO_VERSION + ask.text[:LONGEST_TEXT]

    def _can_carry(self, path: str) -> bool:
        """Whether backends could be told a version in a request with this path."""
        return self._carries_anywhere or any(each.covers(path) for each in self._parts.targets if each.sent)

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """What all places say that say anything; two that say different things are no version."""
        parts = self._parts
        asks = [each.read(headers) for each in parts.fields]
        if place.carried is not None:
            asks.insert(parts.target_rank, self._read_carried(place.carried))
        return agreed(asks)

    def _read_carried(self, carried: str) -> Ask:
        if carried.startswith(_NO_VERSION):
            return Ask(AskKind.GARBLED, text=carried.removeprefix(_NO_VERSION))
        return self._parts.words.read(carried)

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[HeaderLine, ...]:
        """The version in every header that backends read; off the others."""
        return () if silent else self._lines(headers, self.scheme.format(version))

    def without_version(self, headers: Mapping[str, str]) -> tuple[HeaderLine, ...]:
        """`Accept` and `Content-Type` without the parameter, where it stands there."""
        return self._lines(headers, None)

    def _lines(self, headers: Mapping[str, str], text: str | None) -> tuple[HeaderLine, ...]:
        return tuple(
            line for each in self._parts.fields for line in each.write(headers, text if each.sent else None)
        )

    def plain_path(self, path: str) -> str:
        """The path without the version's segment."""
        return path if self._path is None else self._path.rest(path)

    def write_target(self, place: Place, target: str, version: Version) -> str:
        """The version where backends read it in the target; off the others."""
        path, mark, query = target.partition("?")
        kept = "" if query else mark
        text = self.scheme.format(version)
        for each in self._parts.targets:
            path, query = each.write(path, query, text if each.sent else None)
        return f"{path}?{query}" if query else path + kept

    # -- 2. replies made by the gateway

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """What the operator wants said, with the range in the headers that tell one."""
        outside, malformed = self._parts.statuses
        status = malformed if refusal.version is None else outside
        reply = self._parts.wording.refuse(refusal, status)
        return reply.with_headers(*self._parts.reply.write(None, refusal.bounds))

    def fail(self, failure: Failure) -> Reply:
        """The same for any other error."""
        return self._parts.wording.fail(failure).with_headers(*self._parts.reply.write(None, failure.bounds))

    def refuse_operation(self, absence: Absence, place: Place) -> Reply:
        """As any other error, with the served version: the version was accepted, the operation is not there.
        Without it the reply would be one that refuses the version, where that is 404, too."""
        told = self._parts.reply.write(absence.version, absence.bounds)
        return self._parts.wording.fail(absence.failure).with_headers(*told)

    # -- 3. the backend's reply

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """Served version and range. A reply with the status of a refusal that tells the range, and no served
        version where others do, refuses the version; or its body does."""
        parts, told = self._parts, self._parts.reply
        advert = told.read_range(headers)
        refused = Refused.NO
        if place.negotiated and status == parts.statuses[0]:
            if advert is not None and told.served and not all_values(headers, fold(told.served)):
                refused = Refused.YES
            elif parts.refusals_tell:
                refused = Refused.READ_BODY
        return Served(told.read_served(headers), advert, refused, told.ranged(headers))

    def read_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Advert | None:
        """The versions that a refusal tells, where the operator says that it does."""
        versions = self._parts.refused.read(load(body))
        return Advert(versions) if versions else None

    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[HeaderLine, ...]:
        """What was served as the backend said it, and the offer where it told its range. Where clients must
        be told, what was settled on."""
        parts = self._parts
        version = served.version
        if version is None and status >= 200 and (silent or parts.tells_served):
            version = settled
        told = served.ranged or (status >= 200 and (silent or parts.tells_always))
        return parts.reply.write(version, bounds if told else None)

    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        """The offer where the document tells versions."""
        path = place.name.removeprefix("document ")
        document = load(body)
        told = [each.rewrite(document, bounds, links) for at, each in self._parts.documents if at == path]
        return dump(document) if any(told) else None

    # -- 4. probes

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """One question, for the document or for the headers of a reply."""
        parts, learn = self._parts, self._parts.learn
        if not answers:
            return ProbeRequest(path or learn.path, (("Accept", learn.content_type),))
        answer = answers[0]
        if answer.status not in learn.statuses:
            expected = ", ".join(map(str, learn.statuses))
            return ProbeFault("status", f"answered {answer.status} where {expected} was expected")
        if not parts.learns:
            return parts.reply.read_range(answer.headers) or ProbeFault(
                "range", "the version headers of the answer do not tell what is served"
            )
        kinds = {
            line.partition(";")[0].strip().lower() for line in all_values(answer.headers, "content-type")
        }
        if kinds != {learn.content_type}:
            return ProbeFault("document", f"the answer is not of the type {learn.content_type}")
        versions = parts.learned.read(load(answer.body))
        if not versions:
            return ProbeFault(
                "range", f"the document does not tell 1 to {MOST_READ} versions where the configuration says"
            )
        return Advert(versions)
