"""Bodies of the errors that the gateway makes for an API: templates, and RFC 9457 problem documents.

A client's own text is escaped as the type of the body requires. This module decides no status and reads no
request.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Final, final

from gateway.core.dialect import GatewayError, Refusal, RefusalReason
from gateway.core.http.message import Response
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]+)\}", re.ASCII)
ERROR_PLACEHOLDERS: Final = ("status", "title", "detail")
_REFUSAL_PLACEHOLDERS: Final = (*ERROR_PLACEHOLDERS, "asked", "minimum", "maximum", "versions", "array")
_LONGEST_QUOTE: Final = 100
"""Longest part of a client's own text in an error, in characters. No version is longer."""

DEFAULT_ERROR: Final = '{"type": "about:blank", "title": "{title}", "status": {status}, "detail": "{detail}"}'
_RANGE_REFUSAL: Final = DEFAULT_ERROR[:-1] + ', "minimum": "{minimum}", "maximum": "{maximum}"}'
_SET_REFUSAL: Final = _RANGE_REFUSAL[:-1] + ', "versions": {array}}'


def is_json(content_type: str) -> bool:
    """Whether a body of this media type is JSON."""
    name = content_type.partition(";")[0].strip().lower()
    return name.endswith(("/json", "+json"))


@final
@dataclass(frozen=True, slots=True)
class Template:
    """A body of an error response, with placeholders such as `{detail}`."""

    text: str
    content_type: str

    @classmethod
    def read(cls, text: str, content_type: str, known: tuple[str, ...]) -> Template:
        """Read and check a body's template. Raises `ValueError` for unknown placeholders or invalid JSON."""
        for name in _PLACEHOLDER.findall(text):
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f"did you mean {{{close[0]}}}?" if close else "known: " + ", ".join(known)
                raise ValueError(f"a word in braces is not a known placeholder; {hint}")
        made = cls(text, content_type)
        if is_json(content_type):
            try:
                json.loads(made.fill({**dict.fromkeys(known, "x"), "status": "400", "array": "[]"}))
            except ValueError:
                raise ValueError("the body is not JSON, as its content_type demands") from None
        return made

    def fill(self, values: Mapping[str, str]) -> str:
        """The template's text with `values`, escaped for the content type except `status` and `array`."""

        def one(found: re.Match[str]) -> str:
            name = found[1]
            return values[name] if name in {"status", "array"} else self._escaped(values[name])

        return _PLACEHOLDER.sub(one, self.text)

    def _escaped(self, text: str) -> str:
        if is_json(self.content_type):
            return json.dumps(text)[1:-1]
        return text if self.content_type.startswith("text/plain") else html.escape(text)

    def response(self, status: int, values: Mapping[str, str]) -> Response:
        body = self.fill({**values, "status": str(status)}).encode("utf-8")
        return Response(status, (("Content-Type", self.content_type),), body)


@final
@dataclass(frozen=True, slots=True)
class ErrorBodies:
    """Bodies of all responses that the gateway itself makes for one API."""

    scheme: Scheme
    refusal: Template
    refusals: Mapping[RefusalReason, Template]
    """Templates of bodies for version refusals with certain reasons, used instead of `refusal`."""
    error: Template

    def write_refusal(self, refusal: Refusal, status: int, hint: str = "") -> Response:
        """The response that refuses a version. `hint`: a sentence that follows the detail."""
        offered, requested = refusal.offered, refusal.requested.text
        if refusal.text:  # no template of a refusal says more than that a version is not supported
            return self.error.response(status, {"title": _phrase(status), "detail": refusal.text})
        if not requested and refusal.version is not None:  # the default version, which is not on offer
            requested = self.scheme.format(refusal.version)
        values = {
            "asked": requested[:_LONGEST_QUOTE],
            "title": _phrase(status),
            "detail": _sentence(refusal, requested[:_LONGEST_QUOTE], self.describe(offered)) + hint,
            "minimum": self.scheme.format(offered.lowest),
            "maximum": self.scheme.format(offered.highest),
            "versions": self.describe(offered),
            "array": "[]" if self.scheme.contiguous else json.dumps(self.list_versions(offered)),
        }
        return self._template(refusal).response(status, values)

    def _template(self, refusal: Refusal) -> Template:
        """The template for a refusal's body. A version inside the offer's ends is not too old or too new."""
        offered, version = refusal.offered, refusal.version
        if version is not None and offered.lowest < version < offered.highest:
            return self.refusal
        return self.refusals.get(refusal.reason, self.refusal)

    def write_error(self, error: GatewayError) -> Response:
        """The response for an error that is no refusal."""
        return self.error.response(error.status, {"title": error.title, "detail": error.detail})

    def list_versions(self, offered: VersionSet) -> list[str]:
        """The texts of all versions on offer, oldest first. Only for schemes whose offers are sets."""
        return [self.scheme.format(version) for version in offered]

    def describe(self, offered: VersionSet) -> str:
        """The versions on offer, as part of a sentence: `2 to 5`, or every version of a set."""
        if not self.scheme.contiguous:
            return ", ".join(self.list_versions(offered))
        lowest, highest = self.scheme.format(offered.lowest), self.scheme.format(offered.highest)
        return f"{lowest} to {highest}" if lowest != highest else lowest


def _sentence(refusal: Refusal, requested: str, supported: str) -> str:
    if refusal.version is not None:
        return f"Version {requested} is not supported. Supported: {supported}."
    if not requested:
        return f"A version must be named. Supported: {supported}."
    return f"{requested} is no version. Supported: {supported}."


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Error"


def refusal_placeholders(scheme: Scheme) -> tuple[str, ...]:
    """Names of placeholders in a refusal's body. A range cannot be a list: it may have a million members."""
    return tuple(name for name in _REFUSAL_PLACEHOLDERS if name != "array" or not scheme.contiguous)


def default_refusal(scheme: Scheme) -> str:
    """The default body of a refusal: a problem document with the range, or with every version of a set."""
    return _RANGE_REFUSAL if scheme.contiguous else _SET_REFUSAL
