"""The events of a stream, by httpx2's own parser, from servers that frame them carelessly."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import httpx2

_EVENTS = re.compile(r"(?:data|event|id|retry)?:")


async def events_or_text(response: httpx2.Response) -> AsyncIterator[httpx2.ServerSentEvent] | str:
    """The server-sent events of a response (WHATWG HTML, 9.2.6), or its whole text where it is
    something else: a completion in one piece, a web page.

    How the body begins decides, for content types are often wrong or absent. Two further things
    are mended before the parser sees them: a charset other than UTF-8, and a last event without
    the blank line that ends it.
    """
    import httpx2

    response.encoding = "utf-8"
    texts = aiter(response.aiter_text())
    begun = ""
    while len(begun) < len("retry:") and not begun.startswith(":"):
        text = await anext(texts, None)
        if text is None:
            break
        begun = (begun + text).lstrip("\ufeff \r\n\t")
    if begun and not _EVENTS.match(begun):
        return begun + "".join([text async for text in texts])
    mended = _Mended(response, begun, texts)
    return aiter(httpx2.EventSource(cast("httpx2.Response", mended), max_event_size=None))


class _Mended:
    """As much of a response as the parser looks at."""

    def __init__(self, response: httpx2.Response, begun: str, rest: AsyncIterator[str]) -> None:
        self.request = response.request
        self.headers = {"content-type": "text/event-stream"}
        self._begun, self._rest = begun, rest

    async def aiter_text(self) -> AsyncIterator[str]:
        yield self._begun
        async for text in self._rest:
            yield text
        yield "\n\n"
