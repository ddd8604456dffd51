"""Recall as a tool: the model looks up what has left its window, or reads an entry whole."""

from __future__ import annotations

import re
from typing import Protocol

from perdure.chat.calls import Example
from perdure.chat.messages import Message, text_of
from perdure.errors import ToolError
from perdure.memory.passages import RECALL
from perdure.tools.contract import Tool
from perdure.tools.registry import tool

#: Characters of a page at most, whatever the window; and of any output, which limits itself.
LONGEST_PAGE, OUTPUT_LIMIT = 12_000, 60_000

#: A query that names an entry.
NAMED = re.compile(r"(?:entry|第)?\s*#?(\d{1,12})\s*条?", re.IGNORECASE)

EXAMPLES = (
    Example("What did I say about the deploy port earlier?", {"query": "deploy port"}),
    Example("Recall what we decided about the database", {"query": "decision about the database"}),
    Example("Look up the earlier conversation about Ines", {"query": "Ines"}),
    Example("Read entry 12 whole", {"query": "12"}),
    Example("我之前说过部署端口是多少？", {"query": "部署端口"}),
    Example("回忆一下我们关于数据库的决定", {"query": "数据库 决定"}),
)


class Recollection(Protocol):
    """What the tool asks. Both may raise `perdure.errors.PerdureError`."""

    async def find(self, query: str, first: int | None, last: int | None) -> str:
        """Excerpts that are about the query, of entries ``first`` to ``last``, as one text; empty where
        there are none."""
        ...

    async def read(self, entry: int) -> Message | None:
        """An entry's message, whole; None where there is none of that number."""
        ...


def recall_tool(recollection: Recollection, page: int) -> Tool:
    """The tool `recall`. ``page``: characters that it shows at once."""
    page = max(min(page, LONGEST_PAGE), 400)

    @tool(name=RECALL, effect="reads", examples=EXAMPLES, output_limit=OUTPUT_LIMIT)
    async def recall(
        query: str,
        entry: int | None = None,
        page_number: int = 1,
        first_entry: int | None = None,
        last_entry: int | None = None,
    ) -> str:
        """Look up what was said or shown earlier and is no longer in view: search by a query, or read one
        entry whole by its number.

        Args:
            query: what to look for, in words; or the number of an entry
            entry: number of an entry to read whole, whatever the query
            page_number: which page of a long entry, from 1
            first_entry: search only from this entry on
            last_entry: search only up to this entry
        """
        if entry is None and (named := NAMED.fullmatch(query.strip())):
            entry = int(named[1])
        if entry is not None:
            message = await recollection.read(entry)
            if message is None:
                raise ToolError(f"error: there is no entry {entry}")
            return _page(_whole(message), entry, page_number, page)
        if not query.strip():
            raise ToolError("error: give a query, or the number of an entry")
        found = await recollection.find(query, first_entry, last_entry)
        return found or "nothing is found about that; try other words, or read an entry by its number"

    return recall


def _whole(message: Message) -> str:
    calls = (call["function"] for call in message.get("tool_calls") or ())
    parts = (text_of(message), *(f"{call['name']} {call['arguments']}" for call in calls))
    return "\n".join(part for part in parts if part)


def _page(text: str, entry: int, number: int, characters: int) -> str:
    pages = max(-(-len(text) // characters), 1)
    if not 1 <= number <= pages:
        raise ToolError(f"error: entry {entry} has {pages} pages, counted from 1")
    shown = text[(number - 1) * characters : number * characters]
    if pages == 1:
        return shown or "(the entry has no text)"
    more = f"; recall(entry={entry}, page_number={number + 1}) goes on" if number < pages else ""
    return f"{shown}\n[page {number} of {pages} of entry {entry}{more}]"
