from typing import final

from gateway.core.http.patterns import Step

@final
class Matcher:
    def __new__(
        cls, program: tuple[Step, ...], fields: tuple[bytes, ...], values: tuple[bytes, ...], /
    ) -> Matcher: ...
    def match(self, data: bytes, /) -> tuple[int, tuple[bytes, ...], tuple[bytes, ...]] | None: ...
