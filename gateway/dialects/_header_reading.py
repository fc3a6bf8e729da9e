"""From an operator's options to the parts of which a dialect is made; every mistake in them, with its place.

Messages never quote a text: it may come from the environment. A brick of the `header` dialect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, final

from gateway.core.dialect import Match, Reason, Silence, SilenceKind
from gateway.core.message import fold
from gateway.core.version import CalendarDate, MajorMinor, Named, Scheme, Semantic, WholeNumber
from gateway.dialects._header_complaints import MEDIA_TYPE, PLAIN, At, Complaints
from gateway.dialects._header_names import is_older
from gateway.dialects._header_options import HeaderOptions, RefusalOptions
from gateway.dialects._header_places import PathPlace, Spelling, Words
from gateway.dialects._header_placing import FieldPlace, TargetPlace, read_places
from gateway.dialects._header_telling import DocumentTelling, ReplyTelling, Telling
from gateway.dialects._header_telling_options import DocumentOptions, LearnOptions
from gateway.dialects._header_wording import (
    DEFAULT_FAILURE,
    FAILURE_PLACEHOLDERS,
    Template,
    Wording,
    default_refusal,
    placeholders,
)
from gateway.dialects._json_path import JsonPath

_BODY_TYPE: Final = re.compile(r"([a-z0-9.-]+/[a-z0-9.+-]+)(; ?charset=utf-8)?", re.ASCII)
_SILENCES: Final = {
    "minimum": SilenceKind.MINIMUM,
    "maximum": SilenceKind.MAXIMUM,
    "refused": SilenceKind.REFUSED,
}


@final
@dataclass(frozen=True, slots=True)
class Parts:
    """What the options come to."""

    scheme: Scheme
    words: Words
    match: Match
    silence: Silence
    fields: tuple[FieldPlace, ...]
    targets: tuple[TargetPlace, ...]
    target_rank: int
    """How many of `fields` come before the first of `targets`."""
    unversioned: tuple[str, ...]
    learn: LearnOptions
    learned: DocumentTelling
    learns: bool
    """Whether documents tell what a backend serves."""
    reply: ReplyTelling
    tells_served: bool
    """Whether the served version stands on every reply."""
    tells_always: bool
    """Whether the range does, too."""
    statuses: tuple[int, int]
    """Of a refusal: for a version, for what is none."""
    refused: DocumentTelling
    """Where a backend's own refusal tells its versions."""
    refusals_tell: bool
    wording: Wording
    documents: tuple[tuple[str, DocumentTelling], ...]


def read_parts(options: HeaderOptions) -> Parts:
    """The parts. Raises `OptionsError` with everything that is wrong."""
    return _Reader(options).read()


class _Reader:
    """Reads one set of options; its methods share the problems found."""

    def __init__(self, options: HeaderOptions) -> None:
        self.options = options
        self.complaints = Complaints()

    def read(self) -> Parts:
        options = self.options
        scheme = self._scheme()
        words = Words(scheme, self._newest(scheme))
        silence = self._silence(scheme)
        match = self._match(scheme)
        places = read_places(options.places, words, self.complaints)
        reply = self._reply(scheme, match)
        parts = Parts(
            scheme,
            words,
            match,
            silence,
            fields=tuple(each for each in places if isinstance(each, FieldPlace)),
            targets=tuple(each for each in places if isinstance(each, TargetPlace)),
            target_rank=sum(
                isinstance(each, FieldPlace)
                for each in takewhile(lambda each: isinstance(each, FieldPlace), places)
            ),
            unversioned=self._unversioned(places),
            learn=options.learn,
            learned=self._learned(scheme),
            learns=any((options.learn.minimum, options.learn.maximum, options.learn.list)),
            reply=reply,
            tells_served=options.reply.always or match is not Match.EXACT,
            tells_always=options.reply.always,
            statuses=self._statuses(),
            refused=self._told_by_refusal(scheme),
            refusals_tell=any((options.refusal.minimum, options.refusal.maximum, options.refusal.list)),
            wording=self._wording(scheme),
            documents=tuple(
                (
                    self.complaints.path(("documents", at, "path"), each.path),
                    self._document(("documents", at), each, scheme),
                )
                for at, each in enumerate(options.documents)
            ),
        )
        self.complaints.end()
        return parts

    # -- versions

    def _scheme(self) -> Scheme:
        options = self.options
        if options.scheme != "named" and options.names:
            self.complaints.wrong(
                ("names",), "only the scheme `named` has names", "write scheme: named, or remove them"
            )
        if options.scheme != "date" and options.date_form != "day":
            self.complaints.wrong(
                ("date_form",), "only the scheme `date` has dates", "write scheme: date, or remove it"
            )
        match options.scheme:
            case "integer":
                return WholeNumber()
            case "major.minor":
                return MajorMinor()
            case "semver":
                return Semantic()
            case "date":
                return CalendarDate(day=options.date_form == "day")
            case _:
                return Named(self._names())

    def _names(self) -> tuple[str, ...]:
        names: list[str] = []
        if not self.options.names:
            self.complaints.wrong(
                ("names",), "the scheme `named` needs its names", "write names: [OLDEST, ..., NEWEST]"
            )
            return ("v1",)
        for at, name in enumerate(self.options.names):
            if not name or len(name) > 64 or PLAIN.fullmatch(name) is None:
                self.complaints.wrong(
                    ("names", at), "a name is 1 to 64 letters, digits, `.`, `_`, `~` or `-`"
                )
            elif name in _SILENCES or name == "none":
                self.complaints.wrong(
                    ("names", at), "this word means something else", "no version may have this name"
                )
            elif name in names:
                self.complaints.wrong(("names", at), "this name stands twice", "each name once, oldest first")
            elif names and is_older(name, names[-1]):
                self.complaints.wrong(
                    ("names", at),
                    "the names are out of order: this one is older than the one before it",
                    "oldest first",
                )
            names.append(name)
        return tuple(dict.fromkeys(names))

    def _newest(self, scheme: Scheme) -> str | None:
        word = self.options.newest
        if word is None:
            return None
        if len(word) > 64 or PLAIN.fullmatch(word) is None:
            self.complaints.wrong(("newest",), "the word is up to 64 letters, digits, `.`, `_`, `~` or `-`")
        if scheme.parse(word) is not None:
            self.complaints.wrong(
                ("newest",),
                "this is a version, so it cannot mean the newest one",
                "write a word, like latest",
            )
        return word

    def _silence(self, scheme: Scheme) -> Silence:
        text = self.options.silence
        if kind := _SILENCES.get(text):
            return Silence(kind)
        version = scheme.parse(text)
        if version is None:
            self.complaints.wrong(
                ("silence",),
                f"this is no version of the form {scheme.example}",
                "or write minimum, maximum or refused",
            )
            return Silence(SilenceKind.MINIMUM)
        return Silence(SilenceKind.CONSTANT, version)

    def _match(self, scheme: Scheme) -> Match:
        match = Match(self.options.match)
        if match is not Match.EXACT:
            if not isinstance(scheme, CalendarDate | Named):
                self.complaints.wrong(("match",), "only dates and names are matched so", "write exact")
            if self.options.reply.served is None:
                self.complaints.wrong(
                    ("match",), "clients must be told what they get", "name a header: reply.served"
                )
        return match

    def _unversioned(self, places: tuple[FieldPlace | TargetPlace, ...]) -> tuple[str, ...]:
        """Paths without versions; below none of them may a version stand."""
        prefix = next((each.prefix for each in places if isinstance(each, PathPlace)), "")
        for at, path in enumerate(self.options.unversioned):
            self.complaints.path(("unversioned", at), path)
            if prefix and (prefix == path or prefix.startswith(path + "/")):
                said = "versions stand below this path, says one of the places"
                self.complaints.wrong(("unversioned", at), said, "remove it, or name longer paths")
        return self.options.unversioned

    # -- what backends and clients are told

    def _json(self, at: At, text: str | None) -> JsonPath | None:
        return None if text is None else self.complaints.tried(at, lambda: JsonPath.read(text), JsonPath(()))

    def _told(
        self,
        at: At,
        told: LearnOptions | DocumentOptions | RefusalOptions,
        scheme: Scheme,
        spelling: Spelling,
    ) -> DocumentTelling:
        listed = self._json((*at, "list"), told.list)
        if listed is not None and None not in listed.steps and isinstance(told, DocumentOptions):
            self.complaints.wrong(
                (*at, "list"), "no step of this path stands for every item", "write $.versions[*]"
            )
        return DocumentTelling(
            Telling(scheme, spelling),
            self._json((*at, "minimum"), told.minimum),
            self._json((*at, "maximum"), told.maximum),
            listed,
            self._json((*at, "links"), told.links) if isinstance(told, DocumentOptions) else None,
        )

    def _learned(self, scheme: Scheme) -> DocumentTelling:
        learn, at = self.options.learn, "learn"
        self.complaints.path((at, "path"), learn.path)
        for index, status in enumerate(learn.statuses):
            if not 200 <= status < 500:
                self.complaints.wrong(
                    (at, "statuses", index), "an answer that tells versions has a status from 200 to 499"
                )
        if not learn.statuses:
            self.complaints.wrong(
                (at, "statuses"), "no answer would be believed", "remove the key to get its default"
            )
        if MEDIA_TYPE.fullmatch(learn.content_type) is None:
            self.complaints.wrong(
                (at, "content_type"), "this is no media type", "write TYPE/SUBTYPE, without parameters"
            )
        self._check_told((at,), learn, scheme)
        return self._told(
            (at,), learn, scheme, self.complaints.spelling((at, "spelling"), learn.spelling, free=True)
        )

    def _check_told(self, at: At, told: LearnOptions | RefusalOptions, scheme: Scheme) -> None:
        """A list, or both ends of a range."""
        ends = [name for name in ("minimum", "maximum") if getattr(told, name) is not None]
        if told.list is not None and ends:
            self.complaints.wrong((*at, ends[0]), "the list tells it already", "remove the one or the other")
        elif len(ends) == 1:
            self.complaints.wrong((*at, ends[0]), "a range has two ends", "name both: minimum and maximum")
        self._check_range((*at, "minimum"), scheme, ends=len(ends) == 2)

    def _check_range(self, at: At, scheme: Scheme, *, ends: bool) -> None:
        """Of names everything between two is known; of dates and X.Y.Z nothing is."""
        if ends and not scheme.contiguous and not isinstance(scheme, Named):
            self.complaints.wrong(
                at, "nobody knows which versions of this scheme lie between two", "name a list"
            )

    def _document(self, at: At, document: DocumentOptions, scheme: Scheme) -> DocumentTelling:
        if not any((document.minimum, document.maximum, document.list, document.links)):
            self.complaints.wrong(
                at, "nothing is told where versions stand", "name minimum, maximum, list or links"
            )
        spelling = self.complaints.spelling((*at, "spelling"), document.spelling, free=True)
        if spelling.open_end:
            self.complaints.wrong((*at, "spelling"), "what is written has no open end", "remove the `*`")
        return self._told(at, document, scheme, spelling)

    def _reply(self, scheme: Scheme, match: Match) -> ReplyTelling:
        reply = self.options.reply
        names: set[str] = set()
        for kind in ("served", "minimum", "maximum", "list"):
            name = getattr(reply, kind)
            if name is not None:
                self.complaints.header_name(("reply", kind), name)
                if fold(name) in names:
                    self.complaints.wrong(
                        ("reply", kind), "another one stands in this header", "each has a header of its own"
                    )
                names.add(fold(name))
        telling = Telling(scheme, self.complaints.spelling(("reply", "spelling"), reply.spelling))
        made = ReplyTelling(telling, reply.served, reply.minimum, reply.maximum, reply.list)
        learn = self.options.learn
        if not (learn.minimum or learn.maximum or learn.list or made.listed):
            # What a backend serves is then learned from these two.
            self._check_range(("reply", "minimum"), scheme, ends=made.tells_range)
        return made

    # -- refusals

    def _statuses(self) -> tuple[int, int]:
        refusal = self.options.refusal
        for kind in ("status", "malformed_status"):
            if not 400 <= getattr(refusal, kind) <= 499:
                self.complaints.wrong(("refusal", kind), "a refusal has a status from 400 to 499")
        return refusal.status, refusal.malformed_status

    def _told_by_refusal(self, scheme: Scheme) -> DocumentTelling:
        refusal = self.options.refusal
        self._check_told(("refusal",), refusal, scheme)
        spelling = self.complaints.spelling(("refusal", "spelling"), refusal.spelling, free=True)
        return self._told(("refusal",), refusal, scheme, spelling)

    def _wording(self, scheme: Scheme) -> Wording:
        refusal, failure = self.options.refusal, self.options.failure
        known = placeholders(scheme)
        self._body_type(("refusal", "content_type"), refusal.content_type, refusal.body)
        self._body_type(("failure", "content_type"), failure.content_type, failure.body)

        def template(kind: str, text: str) -> Template:
            made = Template(text, refusal.content_type)
            return self.complaints.tried(
                ("refusal", kind), lambda: Template.read(text, refusal.content_type, known), made
            )

        kinds = {Reason.BELOW_MIN: "too_old", Reason.ABOVE_MAX: "too_new", Reason.MALFORMED: "malformed"}
        own = {reason: getattr(refusal, kind) for reason, kind in kinds.items()}
        text = failure.body or DEFAULT_FAILURE
        return Wording(
            scheme,
            template("body", refusal.body or default_refusal(scheme)),
            {reason: template(kinds[reason], text) for reason, text in own.items() if text is not None},
            self.complaints.tried(
                ("failure", "body"),
                lambda: Template.read(text, failure.content_type, FAILURE_PLACEHOLDERS),
                Template(text, failure.content_type),
            ),
        )

    def _body_type(self, at: At, text: str, body: str | None) -> None:
        if _BODY_TYPE.fullmatch(text) is None:
            self.complaints.wrong(
                at,
                "this is no type that a body may have",
                "write application/json or text/plain; charset=utf-8",
            )
        elif body is None and not text.endswith("json"):
            self.complaints.wrong(
                at, "without a body of your own it is a problem document, which is JSON", "write a body"
            )
