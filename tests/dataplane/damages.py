"""Heads with a few positions changed: what a hostile or broken peer may send instead of a good one."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from gateway.dataplane.http1.fields import HEAD_END

PIECES: Final = (
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"#",
    b"%",
    b"%2e",
    b"_",
    b"-",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"0",
    b"9" * 20,
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"GET",
    b"Host: y\r\n",
    b"\r\n ",
    b"Content-Length: 6\r\n",
    b"(",
    b"/",
    b"@",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: host\r\n",
    b"Connection: " + b"a" * 2000 + b"\r\n",
    b"Upgrade: x\r\n",
    b"Expect: 100-continue\r\n",
    b"X: y\r\n" * 120,
    b"a" * 9000,
    b"http://h/",
    b"\xd9\xa5",
    b"X-" + b"n" * 300 + b": z\r\n",
)
DAMAGES = st.sampled_from(PIECES)


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """`good` with a few positions changed, up to its first empty line."""

    @st.composite
    def strategy(draw: st.DrawFn) -> bytes:
        head = good
        for _ in range(draw(st.integers(0, 4))):
            position = draw(st.integers(0, len(head)))
            head = head[:position] + draw(DAMAGES) + head[position + draw(st.integers(0, 3)) :]
        head += HEAD_END
        return head[: head.index(HEAD_END) + 4]

    return strategy()
