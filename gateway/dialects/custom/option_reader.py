"""Turns the options of the `custom` dialect into an `ApiDescription`, and finds every mistake in them.

Messages never quote a text, because it may come from the environment. Nothing here sees a request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, TypeAlias, final

from gateway.core.dialect import OptionWarning, RefusalReason, VersionMatch
from gateway.core.http.message import normalize_name
from gateway.core.versions.version import (
    CalendarDate,
    MajorMinor,
    Named,
    Scheme,
    Semantic,
    WholeNumber,
)
from gateway.dialects.custom.codec import DocumentCodec, ResponseCodec, VersionCodec
from gateway.dialects.custom.error_bodies import (
    DEFAULT_ERROR,
    ERROR_PLACEHOLDERS,
    ErrorBodies,
    Template,
    default_refusal,
    refusal_placeholders,
)
from gateway.dialects.custom.json_path import JsonPath
from gateway.dialects.custom.locations import (
    Affixes,
    HeaderLocation,
    PathLocation,
    QueryLocation,
    VersionSyntax,
)
from gateway.dialects.custom.media_types import MediaTypeLocation
from gateway.dialects.custom.option_problems import (
    MEDIA_TYPE,
    PATH,
    PLAIN,
    SUFFIX,
    TOKEN,
    VERSION,
    OptionProblems,
    Position,
)
from gateway.dialects.custom.options import (
    CustomOptions,
    DocumentOptions,
    LearnOptions,
    LocationOptions,
    RefusalOptions,
)
from gateway.dialects.custom.spellings import end_of_prefix, letters_and_digits

HeadersLocation: TypeAlias = HeaderLocation | MediaTypeLocation
TargetLocation: TypeAlias = QueryLocation | PathLocation

_LOCATION_KINDS: Final = ("header", "query", "path", "parameter")
_OTHER_PARAMETERS: Final = frozenset({"q", "charset", "boundary"})
"""Parameters of media types that have another meaning and so cannot hold a version."""
_VERSION_SEGMENT: Final = re.compile(r".*?/[A-Za-z.-]*[0-9]+(?:[.-][0-9]+)*(?=/|\Z)", re.ASCII)
"""Pattern for a path up to the end of a segment that looks like a version."""
_BODY_TYPE: Final = re.compile(r"([a-z0-9.-]+/[a-z0-9.+-]+)(; ?charset=utf-8)?", re.ASCII)
_RESERVED: Final = frozenset({"minimum", "maximum", "refused", "none"})
"""Words that no version may be named: they have a meaning of their own (`default_version`)."""


@final
@dataclass(frozen=True, slots=True)
class ApiDescription:
    """An API as the dialect `custom` uses it: the options, and what was made from them."""

    options: CustomOptions
    scheme: Scheme
    syntax: VersionSyntax
    match: VersionMatch
    in_headers: tuple[HeadersLocation, ...]
    in_target: tuple[TargetLocation, ...]
    target_rank: int
    """Number of version locations in headers that come before the first one in the target."""
    suffixes: tuple[str, ...]
    method_override: tuple[str, ...]
    """Headers (normalized names) that replace a request's method."""
    advertisement_codec: DocumentCodec
    """Places of versions in the document that probes read. If it has none, probes read response headers."""
    response_codec: ResponseCodec
    served_always: bool
    """Whether every response to a client must have the served version."""
    refusal_codec: DocumentCodec
    """Places of versions in the body of a backend's own refusal."""
    error_bodies: ErrorBodies
    documents: tuple[tuple[str, DocumentCodec], ...]
    versioned_documents: tuple[str, ...]
    """Paths of documents of versions that exist with a version in the path, too."""
    probed_paths: frozenset[str] = frozenset()
    """Paths that probes and health checks request, as clients write them."""
    warnings: tuple[OptionWarning, ...] = ()
    notes: tuple[str, ...] = ()


def read_api(options: CustomOptions) -> ApiDescription:
    """Read the description of an API from its options. Raises `OptionsError` with every mistake."""
    return _Reader(options).read()


WHOLE: Final = JsonPath(())
"""The JSON path of a whole document, `$`."""
ITEMS: Final = JsonPath((None,))


class _Reader:
    def __init__(self, options: CustomOptions) -> None:
        self.options = options
        self.problems = OptionProblems()

    def read(self) -> ApiDescription:
        options = self.options
        scheme = self._scheme()
        syntax = VersionSyntax(scheme, self._newest(scheme))
        match = self._match(scheme)
        locations = read_locations(options.places, syntax, self.problems)
        response_codec = self._response_codec(scheme)
        self._check_unversioned(locations)
        self._check_statuses()
        api = ApiDescription(
            options,
            scheme,
            syntax,
            match,
            in_headers=tuple(each for each in locations if isinstance(each, HeadersLocation)),
            in_target=tuple(each for each in locations if isinstance(each, TargetLocation)),
            target_rank=len(
                list(takewhile(lambda location: isinstance(location, HeadersLocation), locations))
            ),
            suffixes=self._suffixes(),
            method_override=self._method_override(locations),
            advertisement_codec=self._advertisement_codec(scheme),
            response_codec=response_codec,
            served_always=options.reply.always or match is not VersionMatch.EXACT,
            refusal_codec=self._refusal_codec(scheme),
            error_bodies=self._error_bodies(scheme),
            documents=tuple(
                (
                    self.problems.check_path(("documents", at, "path"), document.path),
                    self._document(("documents", at), document, scheme),
                )
                for at, document in enumerate(options.documents or ())
            ),
            versioned_documents=tuple(each.path for each in options.documents or () if each.versioned),
        )
        self.problems.raise_if_any()
        return api

    def _scheme(self) -> Scheme:
        options = self.options
        if options.scheme != "named" and options.names:
            message = "only the scheme `named` has names"
            self.problems.add(("names",), message, "write scheme: named, or remove them")
        if options.scheme != "date" and options.date_form != "day":
            message = "only the scheme `date` has dates"
            self.problems.add(("date_form",), message, "write scheme: date, or remove it")
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
            message = "the scheme `named` needs its names"
            self.problems.add(("names",), message, "write names: [OLDEST, ..., NEWEST]")
            return ("v1",)
        for at, name in enumerate(self.options.names):
            position = ("names", at)
            if not name or len(name) > 64 or PLAIN.fullmatch(name) is None:
                self.problems.add(position, "a name has 1 to 64 letters, digits, `.`, `_`, `~` or `-`")
            elif name in _RESERVED:
                self.problems.add(position, "this word is reserved", "no version may have this name")
            elif name in names:
                self.problems.add(position, "this name occurs twice", "write each name once, oldest first")
            elif names and is_older(name, names[-1]):
                message = "the names are out of order: this one is older than the one before it"
                self.problems.add(position, message, "write the oldest first")
            names.append(name)
        return tuple(dict.fromkeys(names))

    def _newest(self, scheme: Scheme) -> str | None:
        word = self.options.newest
        if word is None:
            return None
        if len(word) > 64 or PLAIN.fullmatch(word) is None:
            self.problems.add(("newest",), "the word has up to 64 letters, digits, `.`, `_`, `~` or `-`")
        if scheme.parse(word) is not None:
            message = "this is a version, so it cannot mean the newest one"
            self.problems.add(("newest",), message, "write a word, like latest")
        return word

    def _match(self, scheme: Scheme) -> VersionMatch:
        match = VersionMatch(self.options.match)
        if match is not VersionMatch.EXACT:
            if not isinstance(scheme, CalendarDate | Named):
                self.problems.add(("match",), "only dates and names can be matched this way", "write exact")
            if self.options.reply.served is None:
                message = "clients may get another version than they requested and must be able to see it"
                self.problems.add(("match",), message, "name the header of the served version: reply.served")
        return match

    def _check_unversioned(self, locations: tuple[HeadersLocation | TargetLocation, ...]) -> None:
        """Report bad paths in the option `unversioned`: no version may be below any of them."""
        prefix = next((each.prefix for each in locations if isinstance(each, PathLocation)), "")
        for at, path in enumerate(self.options.unversioned):
            self.problems.check_path(("unversioned", at), path)
            if prefix and end_of_prefix(prefix, path) is not None:
                message = "one of the places has versions below this path"
                self.problems.add(("unversioned", at), message, "remove it, or name longer paths")

    def _suffixes(self) -> tuple[str, ...]:
        for at, suffix in enumerate(self.options.suffixes):
            if SUFFIX.fullmatch(suffix) is None:
                message = "a suffix is a dot with letters and digits"
                self.problems.add(("suffixes", at), message, "write it like .json")
        return tuple(suffix.lower() for suffix in self.options.suffixes)

    def _method_override(self, locations: tuple[HeadersLocation | TargetLocation, ...]) -> tuple[str, ...]:
        in_headers = (each for each in locations if isinstance(each, HeadersLocation))
        taken = {normalize_name(name) for location in in_headers for name in location.names}
        for at, name in enumerate(self.options.method_override):
            self.problems.check_header_name(("method_override", at), name, "a method")
            if normalize_name(name) in taken:
                self.problems.add(("method_override", at), "this header already holds a version")
        return tuple(dict.fromkeys(map(normalize_name, self.options.method_override)))

    def _json_path(self, at: Position, text: str | None, otherwise: JsonPath = WHOLE) -> JsonPath | None:
        return None if text is None else self.problems.attempt(at, lambda: JsonPath.read(text), otherwise)

    def _codec(
        self,
        at: Position,
        options: LearnOptions | DocumentOptions | RefusalOptions,
        scheme: Scheme,
        affixes: Affixes,
    ) -> DocumentCodec:
        listed = self._json_path((*at, "list"), options.list, ITEMS)
        if listed is not None and None not in listed.steps and not isinstance(options, RefusalOptions):
            message = "no step of this path means every item"
            self.problems.add((*at, "list"), message, 'write [*], and quotation marks: "$.versions[*]"')
        constant = options.minimum if isinstance(options, LearnOptions) else None
        lowest = None if constant is None else scheme.parse(constant)  # `learn.minimum` may be a version
        return DocumentCodec(
            VersionCodec(scheme, affixes),
            None if lowest else self._json_path((*at, "minimum"), options.minimum),
            self._json_path((*at, "maximum"), options.maximum),
            listed,
            self._json_path((*at, "links"), options.links) if isinstance(options, DocumentOptions) else None,
            lowest,
        )

    def _advertisement_codec(self, scheme: Scheme) -> DocumentCodec:
        learn, at = self.options.learn, "learn"
        self.problems.check_path((at, "path"), learn.path)
        for index, status in enumerate(learn.statuses):
            if not 200 <= status < 500:
                message = "a response that holds versions has a status from 200 to 499"
                self.problems.add((at, "statuses", index), message)
        if not learn.statuses:
            message = "no response would be believed"
            self.problems.add((at, "statuses"), message, "remove the key to get its default")
        if MEDIA_TYPE.fullmatch(learn.content_type) is None:
            message = "not a valid media type"
            self.problems.add((at, "content_type"), message, "write TYPE/SUBTYPE, without parameters")
        self._check_list_or_range((at,), learn, scheme)
        affixes = self.problems.read_affixes((at, "spelling"), learn.spelling, free=True)
        return self._codec((at,), learn, scheme, affixes)

    def _check_list_or_range(
        self, at: Position, options: LearnOptions | RefusalOptions, scheme: Scheme
    ) -> None:
        """Report options that name a list and an end of a range, or only one end."""
        both = "write both: minimum and maximum"
        if isinstance(options, LearnOptions):
            both += "; minimum may be a version that every server serves, like minimum: 1"
        ends = [name for name in ("minimum", "maximum") if getattr(options, name) is not None]
        if options.list is not None and ends:
            self.problems.add((*at, ends[0]), "the list already holds all versions", "remove one of the two")
        elif len(ends) == 1:
            self.problems.add((*at, ends[0]), "a range has two ends", both)
        self._check_range((*at, "minimum"), scheme, ends=len(ends) == 2)

    def _check_range(self, at: Position, scheme: Scheme, *, ends: bool) -> None:
        """Report options that name a range of dates or X.Y.Z: it is unknown what lies between two."""
        if ends and not scheme.contiguous and not isinstance(scheme, Named):
            message = "it is unknown which versions of this scheme lie between two of them"
            self.problems.add(at, message, "write a list")

    def _document(self, at: Position, document: DocumentOptions, scheme: Scheme) -> DocumentCodec:
        if not any((document.minimum, document.maximum, document.list, document.links)):
            message = "nothing names the places of versions in this document"
            self.problems.add(at, message, "write minimum, maximum, list or links")
        affixes = self.problems.read_affixes((*at, "spelling"), document.spelling, free=True)
        if affixes.open_end:
            message = "an open end cannot be written into a document"
            self.problems.add((*at, "spelling"), message, "remove the `*`")
        return self._codec(at, document, scheme, affixes)

    def _response_codec(self, scheme: Scheme) -> ResponseCodec:
        response = self.options.reply
        names: set[str] = set()
        for kind in ("served", "minimum", "maximum", "list"):
            name = getattr(response, kind)
            if name is not None:
                self.problems.check_header_name(("reply", kind), name)
                if normalize_name(name) in names:
                    message = "this header already holds another value"
                    self.problems.add(("reply", kind), message, "give each a header of its own")
                names.add(normalize_name(name))
        codec = VersionCodec(scheme, self.problems.read_affixes(("reply", "spelling"), response.spelling))
        made = ResponseCodec(codec, response.served, response.minimum, response.maximum, response.list)
        learn = self.options.learn
        if not (learn.minimum or learn.maximum or learn.list or made.listed):
            # A backend's versions are then learned from these two headers.
            self._check_range(("reply", "minimum"), scheme, ends=made.advertises)
        return made

    def _check_statuses(self) -> None:
        refusal = self.options.refusal
        for kind in ("status", "malformed_status"):
            if not 400 <= getattr(refusal, kind) <= 499:
                self.problems.add(("refusal", kind), "a refusal has a status from 400 to 499")

    def _refusal_codec(self, scheme: Scheme) -> DocumentCodec:
        refusal = self.options.refusal
        self._check_list_or_range(("refusal",), refusal, scheme)
        affixes = self.problems.read_affixes(("refusal", "spelling"), refusal.spelling, free=True)
        return self._codec(("refusal",), refusal, scheme, affixes)

    def _error_bodies(self, scheme: Scheme) -> ErrorBodies:
        refusal, failure = self.options.refusal, self.options.failure
        known = refusal_placeholders(scheme)
        self._check_body_type(("refusal", "content_type"), refusal.content_type, refusal.body)
        self._check_body_type(("failure", "content_type"), failure.content_type, failure.body)

        def template(kind: str, text: str) -> Template:
            unchecked = Template(text, refusal.content_type)
            return self.problems.attempt(
                ("refusal", kind), lambda: Template.read(text, refusal.content_type, known), unchecked
            )

        keys = {
            RefusalReason.BELOW_MIN: "too_old",
            RefusalReason.ABOVE_MAX: "too_new",
            RefusalReason.MALFORMED: "malformed",
        }
        texts = {reason: getattr(refusal, key) for reason, key in keys.items()}
        error_text = failure.body or DEFAULT_ERROR
        return ErrorBodies(
            scheme,
            template("body", refusal.body or default_refusal(scheme)),
            {reason: template(keys[reason], text) for reason, text in texts.items() if text is not None},
            self.problems.attempt(
                ("failure", "body"),
                lambda: Template.read(error_text, failure.content_type, ERROR_PLACEHOLDERS),
                Template(error_text, failure.content_type),
            ),
        )

    def _check_body_type(self, at: Position, text: str, body: str | None) -> None:
        if _BODY_TYPE.fullmatch(text) is None:
            message = "a body cannot have this type"
            self.problems.add(at, message, "write application/json or text/plain; charset=utf-8")
        elif body is None and not text.endswith("json"):
            message = "the default body is a problem document, which is JSON"
            self.problems.add(at, message, "write a body of your own")


def read_locations(
    written: tuple[LocationOptions, ...], syntax: VersionSyntax, problems: OptionProblems
) -> tuple[HeadersLocation | TargetLocation, ...]:
    """The locations of versions that the option `places` describes, in order, without invalid ones."""
    made = [_location(("places", at), options, syntax, problems) for at, options in enumerate(written)]
    locations = tuple(location for location in made if location is not None)
    _check_together(written, locations, problems)
    return locations


def _location(
    at: Position, options: LocationOptions, syntax: VersionSyntax, problems: OptionProblems
) -> HeadersLocation | TargetLocation | None:
    kinds = [kind for kind in _LOCATION_KINDS if getattr(options, kind) is not None]
    if len(kinds) != 1:
        message = "a place has exactly one of: header, query, path, parameter"
        hint = "write two places, one below the other" if kinds else ""
        problems.add((*at, kinds[1]) if kinds else at, message, hint)
        return None
    if options.media_types and options.parameter is None:
        problems.add((*at, "media_types"), "media_types belong to a parameter", "name it: parameter: NAME")
    affixes = problems.read_affixes((*at, "spelling"), options.spelling)
    if options.header is not None:
        problems.check_header_name((*at, "header"), options.header)
        return HeaderLocation(options.header, syntax, affixes, options.sent)
    if options.query is not None:
        if not letters_and_digits(options.query) or PLAIN.fullmatch(options.query) is None:
            problems.add((*at, "query"), "the name of a parameter has letters, digits, `.`, `_`, `~` or `-`")
        return QueryLocation(options.query, syntax, affixes, options.sent)
    if options.parameter is not None:
        return _media_type_location(at, options, syntax, affixes, problems)
    return _path_location(at, options, syntax, problems)


def _media_type_location(
    at: Position, options: LocationOptions, syntax: VersionSyntax, affixes: Affixes, problems: OptionProblems
) -> MediaTypeLocation:
    name = (options.parameter or "").lower()
    if TOKEN.fullmatch(name) is None or not letters_and_digits(name) or name in _OTHER_PARAMETERS:
        message = "no parameter of this name can hold a version"
        problems.add((*at, "parameter"), message, "write a name, like version")
    types = tuple(text.lower() for text in options.media_types)
    for index, text in enumerate(types):
        if MEDIA_TYPE.fullmatch(text) is None:
            message = "not a valid media type"
            problems.add((*at, "media_types", index), message, "write TYPE/SUBTYPE, without parameters")
    return MediaTypeLocation(name, types, syntax, affixes, options.sent)


def _path_location(
    at: Position, options: LocationOptions, syntax: VersionSyntax, problems: OptionProblems
) -> PathLocation:
    path = options.path or ""
    if options.spelling != VERSION:
        message = "the path itself holds the text around its version"
        problems.add((*at, "spelling"), message, "write it there, and remove this key")
    at = (*at, "path")
    prefix, _, segment = path.rpartition("/")
    if VERSION not in path and (found := _VERSION_SEGMENT.match(path)) is not None:
        prefix, _, segment = found[0].rpartition("/")  # what follows the version is not part of the place
    if VERSION in prefix:
        problems.add(at, "the version must be in the last segment", "leave out what follows it")
        return PathLocation(prefix, syntax, Affixes(), options.sent)
    if not path.startswith("/") or (prefix and PATH.fullmatch(prefix) is None):
        problems.add(at, "not a valid path", "write /v{version} or /admin/api/{version}")
    return PathLocation(prefix, syntax, problems.read_affixes(at, segment, prefix + "/"), options.sent)


def _check_together(
    written: tuple[LocationOptions, ...],
    locations: tuple[HeadersLocation | TargetLocation, ...],
    problems: OptionProblems,
) -> None:
    if not written:
        problems.add(("places",), "no place of the version is given", "name a place")
    elif locations and not any(location.sent for location in locations):
        problems.add(("places",), "backends would never see a version", "remove `sent: false` from one place")
    seen: set[tuple[str, ...]] = set()
    for at, options in enumerate(written):
        for kind in _LOCATION_KINDS:
            name = getattr(options, kind)
            # One path, one parameter; any number of headers and query parameters.
            key: tuple[str, ...] = (kind,)
            if name is not None and kind in {"header", "query"}:
                key = (kind, letters_and_digits(name) if kind == "query" else normalize_name(name))
            if name is not None and key in seen:
                problems.add(("places", at, kind), "there is another place like this", "remove one")
            elif name is not None:
                seen.add(key)


_STAGES: Final = {"alpha": 0, "beta": 1, "rc": 2, "": 3}
_STAGED: Final = re.compile(r"v([0-9]{1,6})(?:(alpha|beta|rc)([0-9]{1,6}))?", re.ASCII)


def is_older(name: str, before: str) -> bool:
    """Whether the numbers in two versions that are names show that `name` cannot come after `before`."""
    one, other = _order(name), _order(before)
    return one is not None and other is not None and one[0] == other[0] and one < other


def _order(name: str) -> tuple[str, tuple[int, ...]] | None:
    """The family of a version's name and its rank there: v1alpha1 < v1beta1 < v1 < v2; r1 < r2 < r10."""
    staged = _STAGED.fullmatch(name)
    if staged is not None:
        return "v", (int(staged[1]), _STAGES[staged[2] or ""], int(staged[3] or 0))
    numbers = re.findall(r"[0-9]{1,18}", name)
    return (re.sub(r"[0-9]{1,18}", "#", name), tuple(map(int, numbers))) if numbers else None
