"""A client for a language server: what an editor asks it for a document, and what it answers.

The base of the protocol is JSON-RPC over the streams of a process. The server's own questions are answered
with what it needs to go on.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, final


@final
class LanguageServer:
    """One server, and the documents that are open in it."""

    def __init__(self, command: Sequence[object], settings: dict[str, Any]) -> None:
        self._settings = settings
        self._number = 0
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        try:
            workspace = {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}
            self.ask("initialize", processId=None, rootUri=None, capabilities={"workspace": workspace})
            self._tell("initialized")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, path: Path, text: str) -> list[dict[str, Any]]:
        """Open the file with this text; its diagnostics."""
        document = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._tell("textDocument/didOpen", textDocument=document)
        while True:
            message = self._read()
            if message.get("method") == "textDocument/publishDiagnostics":
                found: list[dict[str, Any]] = message["params"]["diagnostics"]
                return found

    def complete(self, path: Path, line: int, column: int) -> dict[str, Any]:
        """What is offered at a place, by its label."""
        place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}}
        answer = self.ask("textDocument/completion", **place)
        return {item["label"]: item for item in (answer["items"] if isinstance(answer, dict) else answer)}

    def hover(self, path: Path, line: int, column: int) -> str:
        """What is said about a place."""
        place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}}
        return str(self.ask("textDocument/hover", **place)["contents"]["value"])

    def ask(self, method: str, **parameters: object) -> Any:
        """The result of a request. Everything else that arrives before it is left."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": parameters})
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def _tell(self, method: str, **parameters: object) -> None:
        self._send({"method": method, "params": parameters})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        assert size, "the server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(size))
        if "method" in message and "id" in message:
            self._send({"id": message["id"], "result": self._answer(message)})
        return message

    def _answer(self, message: dict[str, Any]) -> object:
        if message["method"] != "workspace/configuration":
            return None
        return [self._settings.get(item.get("section")) for item in message["params"]["items"]]
