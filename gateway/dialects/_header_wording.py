"""Bodies of the errors that the gateway makes for an API: templates, and RFC 9457 problem documents.

What a client said is escaped as the type of the body wants it. A brick of the `header` dialect: it decides no
status and reads no request.
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

from gateway.core.dialect import Bounds, Failure, Reason, Refusal
from gateway.core.message import Reply
from gateway.core.version import Scheme

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]+)\}", re.ASCII)
_OF_FAILURES: Final = ("status", "title", "detail")
_OF_REFUSALS: Final = (*_OF_FAILURES, "asked", "minimum", "maximum", "versions", "array")
_LONGEST_QUOTE: Final = 100
"""Characters of a client's own text in an error: what is longer is no version."""

_FAILURE: Final = '{"type": "about:blank", "title": "{title}", "status": {status}, "detail": "{detail}"}'
_ENDS: Final = _FAILURE[:-1] + ', "minimum": "{minimum}", "maximum": "{maximum}"}'
_SET: Final = _ENDS[:-1] + ', "versions": {array}}'


def is_json(content_type: str) -> bool:
    """Whether a body of this type is JSON."""
    name = content_type.partition(";")[0].strip().lower()
    return name.endswith(("/json", "+json"))


@final
@dataclass(frozen=True, slots=True)
class Template:
    """A body with places to fill in."""

    text: str
    content_type: str

    @classmethod
    def read(cls, text: str, content_type: str, known: tuple[str, ...]) -> Template:
        """Raises `ValueError` for a word that is not `known`, and for JSON that would be none."""
        for word in _PLACEHOLDER.findall(text):
            if word not in known:
                close = get_close_matches(word, known, n=1)
                hint = f"did you mean {{{close[0]}}}?" if close else "there are: " + ", ".join(known)
                raise ValueError(f"there is nothing to fill in for one of the words in braces; {hint}")
        made = cls(text, content_type)
        if is_json(content_type):
            try:
                json.loads(made.fill({**dict.fromkeys(known, "x"), "status": "400", "array": "[]"}))
            except ValueError:
                raise ValueError("the body is not JSON, as its type says") from None
        return made

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with `values`, which must have every word in it, escaped for its type; `status` and
        `array` stand there as they are."""

        def one(found: re.Match[str]) -> str:
            word = found[1]
            return values[word] if word in {"status", "array"} else self._escaped(values[word])

        return _PLACEHOLDER.sub(one, self.text)

    def _escaped(self, text: str) -> str:
        if is_json(self.content_type):
            return json.dumps(text)[1:-1]
        return text if self.content_type.startswith("text/plain") else html.escape(text)

    def reply(self, status: int, values: Mapping[str, str]) -> Reply:
        body = self.fill({**values, "status": str(status)}).encode("utf-8")
        return Reply(status, (("Content-Type", self.content_type),), body)


@final
@dataclass(frozen=True, slots=True)
class Wording:
    """Everything that is said about one API by the gateway itself."""

    scheme: Scheme
    refusal: Template
    refusals: Mapping[Reason, Template]
    """Where one text is not enough."""
    failure: Template

    def refuse(self, refusal: Refusal, status: int) -> Reply:
        """The body for a refusal."""
        bounds, asked = refusal.bounds, refusal.ask.text
        if not asked and refusal.version is not None:  # silence, or what it stands for
            asked = self.scheme.format(refusal.version)
        values = {
            "asked": asked[:_LONGEST_QUOTE],
            "title": _phrase(status),
            "detail": _sentence(refusal, asked[:_LONGEST_QUOTE], self.told(bounds)),
            "minimum": self.scheme.format(bounds.lowest),
            "maximum": self.scheme.format(bounds.highest),
            "versions": self.told(bounds),
            "array": "[]" if self.scheme.contiguous else json.dumps(self.each(bounds)),
        }
        return self._template(refusal).reply(status, values)

    def _template(self, refusal: Refusal) -> Template:
        """What lies between two versions on offer is neither too old nor too new."""
        bounds, version = refusal.bounds, refusal.version
        if version is not None and bounds.lowest < version < bounds.highest:
            return self.refusal
        return self.refusals.get(refusal.reason, self.refusal)

    def fail(self, failure: Failure) -> Reply:
        """The body for any other error."""
        values = {"title": failure.title, "detail": failure.detail}
        return self.failure.reply(failure.status, values)

    def each(self, bounds: Bounds) -> list[str]:
        """Every version on offer, oldest first; only for schemes whose offers are sets."""
        return [self.scheme.format(version) for version in bounds.versions]

    def told(self, bounds: Bounds) -> str:
        """The offer as people write it."""
        if not self.scheme.contiguous:
            return ", ".join(self.each(bounds))
        lowest, highest = self.scheme.format(bounds.lowest), self.scheme.format(bounds.highest)
        return f"{lowest} to {highest}" if lowest != highest else lowest


def _sentence(refusal: Refusal, asked: str, told: str) -> str:
    if refusal.version is not None:
        return f"Version {asked} is not supported. Supported: {told}."
    if not asked:
        return f"A version must be named. Supported: {told}."
    return f"{asked} is no version. Supported: {told}."


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Client Error"


def placeholders(scheme: Scheme) -> tuple[str, ...]:
    """The words that a refusal may hold. A range is no list: it may have a million members."""
    return tuple(word for word in _OF_REFUSALS if word != "array" or not scheme.contiguous)


def default_refusal(scheme: Scheme) -> str:
    """A problem document with the range, or with every version where an offer is a set."""
    return _ENDS if scheme.contiguous else _SET


FAILURE_PLACEHOLDERS: Final = _OF_FAILURES
DEFAULT_FAILURE: Final = _FAILURE
