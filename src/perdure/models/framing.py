"""The events of a stream, by httpx2's own parser, from servers that frame them carelessly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import httpx2


def events_of(response: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent]:
    """The server-sent events of a response (WHATWG HTML, 9.2.6), leniently.

    Three things that servers get wrong are mended before the parser sees them: another content
    type or none, a charset other than UTF-8, and a last event without the blank line that ends it.
    """
    import httpx2

    return aiter(httpx2.EventSource(cast("httpx2.Response", _Mended(response)), max_event_size=None))


class _Mended:
    """As much of a response as the parser looks at."""

    def __init__(self, response: httpx2.Response) -> None:
        self.request = response.request
        self.headers = {"content-type": "text/event-stream"}
        self._response = response

    async def aiter_text(self) -> AsyncIterator[str]:
        self._response.encoding = "utf-8"
        async for text in self._response.aiter_text():
            yield text
        yield "\n\n"
