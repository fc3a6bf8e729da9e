"""What servers of these APIs say to a version that they do not serve, and in a 406 about something else.

The words are the servers' own.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

UNACCEPTABLE: Final = "reply=406"
"""In the query of a request: the member answers 406 for another reason than the version."""


class _Words(NamedTuple):
    version: object
    """In its texts, ASKED, LOW and HIGH stand for versions."""
    other: object


def _openstack(key: str, text: str) -> object:
    return {key: {"code": 406, "message": text}}


def _listed(detail: str, **more: str) -> object:
    error = {"status": 406, "title": "Not Acceptable", "detail": detail, "code": "", **more}
    return {"errors": [error]}


def _ironic(text: str) -> object:
    return {"error_message": json.dumps({"code": 406, "title": "Not Acceptable", "description": text})}


def _senlin(text: str, kind: str) -> object:
    return {"code": 406, "title": "Not Acceptable", "error": {"code": 406, "message": text, "type": kind}}


_RANGE: Final = "Version ASKED is not supported by the API. Minimum is LOW and maximum is HIGH."
_OTHER: Final = "The resource identified by the request cannot be given in a form that you accept."
_WORDS: Final = {
    "ironic": _Words(
        _ironic("Version ASKED was requested but is not supported by this service. LOW to HIGH are."),
        _ironic("The requested field is not available at this version."),
    ),
    "nova": _Words(_openstack("computeFault", _RANGE), _openstack("computeFault", _OTHER)),
    "senlin": _Words(
        _senlin(
            "Version 'ASKED' is not supported by the API. Minimum is 'LOW' and maximum is 'HIGH'.",
            "InvalidGlobalAPIVersion",
        ),
        _senlin(_OTHER, "HTTPNotAcceptable"),
    ),
    "placement": _Words(
        _listed("Unacceptable version header: ASKED", min_version="LOW", max_version="HIGH"),
        _listed("Only application/json is provided"),
    ),
    "manila": _Words(_openstack("computeFault", _RANGE), _openstack("computeFault", _OTHER)),
    "magnum": _Words(
        _listed("Version ASKED is not supported.", min_version="LOW", max_version="HIGH"),
        _listed(_OTHER),
    ),
    "header": _Words({"error": "no version ASKED, only LOW to HIGH"}, {"error": _OTHER}),
}


def refusal_of_version(service: str, asked: str, low: str, high: str) -> bytes:
    text = json.dumps(_WORDS[service].version)
    for word, version in (("ASKED", asked), ("LOW", low), ("HIGH", high)):
        text = text.replace(word, version)
    return text.encode()


def refusal_status(service: str) -> str:
    """Of a refused version. APIs of the configuration have 400 if it says nothing else."""
    return "400 Bad Request" if service == "header" else "406 Not Acceptable"


def other_refusal(service: str) -> bytes:
    return json.dumps(_WORDS[service].other).encode()
