"""Media types as the standard library's `email` reads them: FastAPI and many others use it."""

from __future__ import annotations

from email.message import Message
from email.utils import collapse_rfc2231_value

from tests.differential.readers.view import MediaType, Unreadable, media_type

CRASHES = (TypeError, ValueError, LookupError)
"""What `email` raises on parameters that it cannot put together: servers answer 500."""


def email_media_type(text: str) -> MediaType:
    message = Message()
    message["content-type"] = text
    try:
        (name, _), *parameters = message.get_params() or [(text, "")]
    except CRASHES as error:
        raise Unreadable(str(error)) from None
    return media_type(
        name.strip(), ((key, collapse_rfc2231_value(value)) for key, value in parameters if key)
    )
