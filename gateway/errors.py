"""Every exception that skewgate raises on purpose.

Expected refusals are values (`core.decision.decision.Refuse`), never exceptions. Exceptions are for broken
peers, wrong files and our own bugs. This module imports nothing of ours.
"""


class SkewgateError(Exception):
    """The base of all. The text is one sentence that an operator can act on."""


class VersionTextError(SkewgateError):
    """A text that should be a version, a range or a set of versions is not one (configuration, releases)."""


class PathTemplateError(SkewgateError):
    """A text that should be a path with placeholders, `/v1/nodes/{id}`, is not one (configuration)."""


class TextRefused(SkewgateError):
    """A text of the configuration is not a value of its key. The message never quotes the text. `hint` may be
    empty."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class OptionsError(SkewgateError, ValueError):
    """Options from which no dialect can be made. `problems` holds every problem: where it is in the options
    (keys, and numbers of list items), what is wrong, and a hint, which may be empty."""

    def __init__(self, problems: tuple[tuple[tuple[str | int, ...], str, str], ...]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, at))}: {text}" for at, text, _ in problems))
        self.problems = problems


class SettingsError(SkewgateError):
    """The configuration cannot be used. `problems` holds every problem, in file order."""

    def __init__(self, message: str, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


CLIENT_ERROR_REASONS = (
    "chunk",
    "chunk_overhead",
    "connection_listed",
    "content_length",
    "control_byte",
    "expect",
    "folded_line",
    "head",
    "head_too_large",
    "header_name",
    "host",
    "http_version",
    "line_end",
    "line_too_long",
    "loop",
    "method",
    "overload",
    "path",
    "plain_http",
    "proxy_header",
    "request_line",
    "smuggling",
    "target",
    "timeout",
    "tls",
    "tls_record",
    "too_many_connections",
    "too_many_headers",
    "transfer_encoding",
)
"""The closed set of values of the label `reason` of skewgate_client_errors_total."""


class FramingError(SkewgateError):
    """A peer broke HTTP/1.1 framing, or sent something ambiguous that we refuse to guess about.

    `status` is the response's if the peer is a client (400, 413, 414, 431, 501, 505 …). `reason` is one of
    `CLIENT_ERROR_REASONS`.
    """

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class CertificateError(SkewgateError):
    """A file of TLS cannot be used. `part` is the key that names it: `certificate`, `key`, `client_ca` or
    `ca`."""

    path = ""
    """Of the file, where whoever raised it knows it."""

    def __init__(self, part: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.part = part
        self.message = message
        self.hint = hint


class StartupError(SkewgateError):
    """The process cannot start: a port is taken, a file cannot be read, a parser is missing."""


class AddressTakenError(StartupError):
    """An address of `listen` belongs to somebody else: another gateway, or workers whose main process is
    gone."""


class BuildError(SkewgateError):
    """There is no compiled build, because it cannot be made here or because making it failed."""


class FixError(SkewgateError):
    """A configuration cannot be mended: its file cannot be written, or has changed since it was checked."""


class AdminError(SkewgateError):
    """The admin listener of a running gateway could not be reached, or refused the request."""


class TokenError(AdminError):
    """It does not accept the token, or there is none."""
