"""Every exception that skewgate raises on purpose.

Expected refusals are values (`core.decision.decision.Refuse`), never exceptions. Exceptions are for broken
peers, wrong files and our own bugs. This module imports nothing of ours.
"""

from typing import Final, NamedTuple


class SkewgateError(Exception):
    """Base class of all these exceptions. The text is one sentence that an operator can act on."""


class VersionTextError(SkewgateError):
    """Raised for a text that is no version, range or set of versions (configuration, releases)."""


class TextRefused(SkewgateError):
    """Raised for a text of the configuration that is not a value of its key. Neither the message nor `hint`
    quotes the text, which may be a secret. `quoting` is a better hint, for a text that may be shown."""

    def __init__(self, message: str, hint: str = "", quoting: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.quoting = quoting


class CommandRefused(SkewgateError):
    """Raised for an operator's command that cannot be given now. Nothing was done."""


class OptionProblem(NamedTuple):
    """One problem in the options of a dialect. `quoting`: as in `TextRefused`."""

    at: tuple[str | int, ...]
    """The keys and list indexes that lead to the option with the problem."""
    message: str
    hint: str = ""
    quoting: str = ""


class OptionsError(SkewgateError, ValueError):
    """Raised for options from which no dialect can be made. `problems` holds every problem."""

    def __init__(self, problems: tuple[OptionProblem, ...]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, each.at))}: {each.message}" for each in problems))
        self.problems = problems


class SettingsError(SkewgateError):
    """Raised when the configuration cannot be used. `problems` holds every problem, in file order."""

    def __init__(self, message: str, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


CLIENT_ERROR_REASONS: Final = {
    "chunk": "a chunk of the body is malformed",
    "chunk_overhead": "the chunks of the body are too small for their extensions and trailers",
    "connection_listed": "`Connection` lists a field that must not be removed",
    "content_length": "`Content-Length` is malformed, or there are several",
    "control_byte": "a header holds a control character",
    "expect": "`Expect` has another value than 100-continue",
    "folded_line": "a header is folded over several lines",
    "head": "the head is not valid HTTP",
    "head_too_large": "the head is larger than `limits.head`",
    "header_name": "the name of a header is not valid",
    "host": "`Host` is missing, malformed, or there are several",
    "http_version": "this version of HTTP is not supported",
    "line_end": "a line of the head does not end with CR LF",
    "line_too_long": "a line of the head is longer than `limits.line`",
    "loop": "the request has passed through this gateway already",
    "method": "this method is not proxied",
    "overload": "the event loop is late",
    "path": "other servers could read the path as another one",
    "plain_http": "plain HTTP was sent to a TLS listener",
    "proxy_header": "the PROXY header of a trusted peer is missing or malformed",
    "request_line": "the request line is malformed",
    "smuggling": "two readers could disagree about where the body ends",
    "target": "the target is malformed",
    "timeout": "the request was not complete in time",
    "tls": "the TLS handshake failed",
    "tls_record": "TLS is broken after the handshake, or begins another one",
    "too_many_connections": "there are too many connections",
    "too_many_headers": "there are more headers than `limits.headers`",
    "transfer_encoding": "`Transfer-Encoding` is not chunked, or there are several",
}
"""The closed set of values of the label `reason` of skewgate_client_errors_total, each in words."""


class FramingError(SkewgateError):
    """Raised when a peer breaks HTTP/1.1 framing, or sends something ambiguous that we refuse to guess about.

    `status` is the response's if the peer is a client (400, 413, 414, 431, 501, 505 …). `reason` is one of
    `CLIENT_ERROR_REASONS`, `detail` a sentence that is more exact than the one there.
    """

    def __init__(self, reason: str, status: int = 400, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.detail = detail


class CertificateError(SkewgateError):
    """Raised when a TLS file cannot be used. `part`: its key, `certificate`, `key`, `client_ca` or `ca`."""

    path = ""
    """Path of the certificate, key or CA file, if it is known where the error is raised."""

    def __init__(self, part: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.part = part
        self.message = message
        self.hint = hint


class StartupError(SkewgateError):
    """Raised when the process cannot start: a port is taken, a file cannot be read, a parser is missing."""


class AddressTakenError(StartupError):
    """Raised when an address of `listen` is in use: by another gateway, or by orphaned workers."""


class BuildError(SkewgateError):
    """Raised when no compiled build can be made here, or when making it has failed."""


class AdminError(SkewgateError):
    """Raised when the admin listener of a running gateway cannot be reached, or refuses the request."""


class TokenError(AdminError):
    """Raised when the admin listener refuses the token of a request, or the request has none."""
