"""Content of a live page, updated once a second for all streams of that page.

    PageContents -> PageFragments -> Shown (HTML by id)  ->  stream, stream, …

A feed runs only while it has followers. A stream keeps what it has sent and compares it with the present
content: it has no queue, so a slow one skips states and misses nothing else. An unchanged fragment stays the
same object from one `Shown` to the next, and is not rendered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final, final

from gateway.admin.ui.fragments import Fragment, PageFragments

if TYPE_CHECKING:
    from gateway.admin.ui.rendering import Rendering

PERIOD: Final = 1.0
"""Seconds between two updates of a live page while only counts change."""

POLL: Final = 0.2
"""Seconds between two checks for an event that the page should show sooner."""

IDLE: Final = 9.0
"""Pause between updates as a multiple of an update's CPU time: a page takes at most a tenth of the loop."""

ROWS: Final = 20
"""Number of page fragments rendered in one event-loop iteration, in some two milliseconds."""

_log = logging.getLogger("skewgate.admin")


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """Rendered content of a page at one moment."""

    page: PageFragments
    html: Mapping[str, str]


NOTHING: Final = Shown(PageFragments({}, {}), {})
"""Content of a page before it is rendered, and what a stream has sent at first."""


@final
class Feed:
    """Live content of a page. `read` returns its fragments or None, `mark` a value that an event changes."""

    def __init__(
        self,
        read: Callable[[], Awaitable[PageFragments | None]],
        mark: Callable[[], Hashable],
        rendering: Rendering,
    ) -> None:
        self._read = read
        self._mark = mark
        self._rendering = rendering
        self.followers = 0
        """Number of open streams of the page."""
        self._shown = NOTHING
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_gone = False
        """Whether the page does not exist any more, or cannot be made."""

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Context manager that counts a follower (an open stream) of the page."""
        self.followers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            self.followers -= 1
            if not self.followers and self._task is not None:
                self._task.cancel()
                self._task, self._shown = None, NOTHING

    async def after(self, last: Shown, seconds: float) -> Shown | None:
        """Waits for page content other than `last`; None: none came in `seconds`, or the page is gone."""
        deadline = monotonic() + seconds
        while not self.is_gone:
            shown, news = self._shown, self._news
            if shown is not last:
                return shown
            try:
                await asyncio.wait_for(news.wait(), max(0.0, deadline - monotonic()))
            except TimeoutError:
                break
        return None

    async def _run(self) -> None:
        try:
            while not self.is_gone:
                mark, begun = self._mark(), thread_time()
                await self._update()
                await self._rest(mark, thread_time() - begun)
        except Exception:  # noqa: BLE001 - whatever it is: live pages must not stop unnoticed
            _log.exception("the operations page cannot be rendered")
            self._end()

    async def _update(self) -> None:
        page = await self._read()
        if page is None:
            self._end()
            return
        self._shown = await self._render(page)
        self._news.set()
        self._news = asyncio.Event()

    def _end(self) -> None:
        self.is_gone = True
        self._news.set()

    async def _render(self, page: PageFragments) -> Shown:
        before = self._shown
        fragments: dict[str, Fragment] = {}
        html: dict[str, str] = {}
        rendered = 0
        for number, (id_, fragment) in enumerate(page.fragments.items()):
            if before.page.fragments.get(id_) == fragment:
                fragments[id_], html[id_] = before.page.fragments[id_], before.html[id_]
            else:
                text = str(self._rendering.fragment(fragment))
                same = before.html.get(id_)
                fragments[id_], html[id_] = fragment, same if same == text else text
                rendered += 1
            if rendered >= ROWS or number % 200 == 199:
                rendered = 0
                await asyncio.sleep(0)
        return Shown(PageFragments(fragments, page.lists), html)

    async def _rest(self, mark: Hashable, worked: float) -> None:
        """Waits until the page's next update: a period, or less after an event. `worked`: seconds of CPU."""
        least = max(POLL, worked * IDLE)
        end = monotonic() + max(PERIOD, least)
        await asyncio.sleep(least)
        while monotonic() < end and self._mark() == mark:  # noqa: ASYNC110 - see `mark`
            await asyncio.sleep(POLL)
