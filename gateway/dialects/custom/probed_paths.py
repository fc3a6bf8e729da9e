"""What follows for clients from the paths that probes request.

They pass without a version where anything else is refused. The document that `learn` reads is one for
clients, too, unless the options say otherwise. What remains misleading, `check` says.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from gateway.core.dialect import OptionWarning, RequestedKind
from gateway.dialects.custom.locations import PathLocation
from gateway.dialects.custom.option_problems import PATH
from gateway.dialects.custom.option_reader import Parts
from gateway.dialects.custom.options import CustomOptions, LearnOptions
from gateway.dialects.custom.spellings import comparable

_JSON: Final = re.compile(r"[^/]+/(?:[^/]+\+)?json", re.ASCII)
_DOCUMENT_STATUSES: Final = frozenset({200, 203, 300})
"""Of a response that may be rewritten (semantics, Responding)."""

SHOWS_ONE_SERVER: Final = "clients that read this document see the versions of one server"


def with_probed_paths(options: CustomOptions, parts: Parts) -> Parts:
    """`parts` with what follows from the paths that probes request."""
    probes, learn = options.probes, options.learn
    requested = (probes.path or learn.path, probes.health)
    learned, health = (None if path is None else probes.local(path.partition("?")[0]) for path in requested)
    paths = frozenset(path for path in (learned, health) if path is not None)
    parts = replace(parts, probed_paths=paths, notes=_notes(parts, paths))
    if learned is None or not parts.probes_document or learned in parts.unversioned:
        return parts
    if options.documents is None and _can_be_rewritten(learned, learn, parts):
        # What stands at `/v3/` is rarely the document that stands at `/`.
        versioned = () if learned == "/" else (learned,)
        documents = ((learned, parts.advertisement_codec),)
        return replace(parts, documents=documents, versioned_documents=versioned)
    known = {comparable(path, parts.suffixes) for path, _ in parts.documents}
    if options.documents == () or comparable(learned, parts.suffixes) in known:
        return parts
    hint = "add it to documents, or to unversioned if they may see that"
    if options.documents is None:
        hint = "write documents: [] if they may see that, or how to rewrite it"
    return replace(parts, warnings=(OptionWarning(("learn", "path"), SHOWS_ONE_SERVER, hint),))


def _can_be_rewritten(path: str, learn: LearnOptions, parts: Parts) -> bool:
    """Whether the offer can be written over what `learn` reads."""
    return (
        all(place.read(path, "").kind is not RequestedKind.EXACT for place in parts.in_target)
        and PATH.fullmatch(path) is not None
        and not parts.advertisement_codec.codec.affixes.open_end
        and _JSON.fullmatch(learn.content_type) is not None
        and not _DOCUMENT_STATUSES.isdisjoint(learn.statuses)
    )


def _notes(parts: Parts, paths: frozenset[str]) -> tuple[str, ...]:
    """What `check` says about paths where a version would be."""
    prefix = next((place.prefix for place in parts.in_target if isinstance(place, PathLocation)), "")
    below = sorted(path for path in paths if prefix and path.startswith(prefix + "/"))
    if not below or set(below) <= set(parts.unversioned):
        return ()
    listed = ", ".join(below)
    note = (
        f"every path below {prefix} needs a version, but for GET and HEAD of {listed}, which probes request; "
        f"list those that need none: unversioned: [{listed}]"
    )
    return (note,)
