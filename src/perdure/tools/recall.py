"""Recall as a tool: the model looks up what has left its window, or reads an entry whole."""

from __future__ import annotations

import re
from typing import Protocol

from perdure.chat.calls import Example
from perdure.chat.language import Language, say
from perdure.chat.messages import Message
from perdure.errors import ToolError, Words
from perdure.memory.excerpts import way_to
from perdure.memory.passages import RECALL, whole_text
from perdure.tools.contract import Tool
from perdure.tools.registry import tool

#: Characters of a page at most, whatever the window; and of any output, which limits itself.
LONGEST_PAGE, OUTPUT_LIMIT = 12_000, 60_000
#: And of a line that is found in a long entry.
LONGEST_LINE = 300

#: An entry, or a range of entries, as models write them.
ENTRY = re.compile(r"(?:entry|第)?\s*#?(\d{1,12})\s*条?", re.IGNORECASE)
OUTPUT = re.compile(r"output\s+#?([0-9a-f]{6})", re.IGNORECASE)
SPAN = re.compile(r"(?:entries|第)?\s*#?(\d{1,12})(?:\s*(?:-|–|to|到)\s*#?(\d{1,12}))?\s*条?", re.IGNORECASE)

EXAMPLES = (
    Example("What did I say about the deploy port earlier?", {"query": "deploy port"}),
    Example("Recall what we decided about the database", {"query": "decision about the database"}),
    Example("Look up the earlier conversation about Ines", {"query": "Ines"}),
    Example("Read entry 12 whole", {"query": "12"}),
    Example("我之前说过部署端口是多少？", {"query": "部署端口"}),
    Example("回忆一下我们关于数据库的决定", {"query": "数据库 决定"}),
)


NOTHING: Words = (
    "nothing is found about that; try other words, or read an entry by its number",
    "没有找到相关内容；请换一些词，或按编号读取记录",
)


class Recollection(Protocol):
    """What the tool asks, of its own session or of another one that is named. All may raise
    `perdure.errors.PerdureError`: `ToolError` where recalling doesn't reach that session."""

    @property
    def lang(self) -> Language:
        """The conversation's."""
        ...

    async def find(self, query: str, first: int | None, last: int | None, session: str = "") -> str:
        """Excerpts that are about the query, of entries ``first`` to ``last``, as one text; empty where
        there are none."""
        ...

    async def read(self, entry: int, session: str = "") -> Message | None:
        """An entry's message, whole; None where there is none of that number."""
        ...

    async def entry_of(self, name: str) -> int | None:
        """The entry of this session in which the output of that name stands; None where there is none."""
        ...

    def showed(self, entry: int, text: str, session: str = "") -> None:
        """The text, which shows some of the entry, is the result."""
        ...


def recall_tool(recollection: Recollection, page: int, *, others: bool = False) -> Tool:
    """The tool `recall`. ``page``: characters that it shows at once; ``others``: it reads other sessions
    too."""
    page = max(min(page, LONGEST_PAGE), 400)
    made = tool(name=RECALL, effect="reads", examples=EXAMPLES, output_limit=OUTPUT_LIMIT)

    async def numbered(asked: str) -> str:
        """What is asked for, of a long output by its name the number of its entry."""
        output = OUTPUT.fullmatch(asked)
        if output is None:
            return asked
        entry = await recollection.entry_of(output[1].lower())
        if entry is None:
            raise ToolError(f"error: there is no output {output[1]}")
        return str(entry)

    async def looked_up(query: str, entries: str, page_number: int, session: str = "") -> str:
        asked, among, session = query.strip(), entries.strip(), session.strip()
        asked, among = await numbered(asked), await numbered(among)
        if number := ENTRY.fullmatch(asked or among):
            entry = int(number[1])
            message = await recollection.read(entry, session)
            if message is None:
                raise ToolError(
                    f"error: there is no entry {entry}" + (f" to read in {session}" * bool(session))
                )
            shown = _page(whole_text(message), way_to(entry, session), entry, page_number, page)
            recollection.showed(entry, shown, session)
            return shown
        if not asked:
            raise ToolError("error: give a query, or the number of an entry")
        span = SPAN.fullmatch(among)
        if among and span is None:
            raise ToolError(f"error: entries are a range such as 10-20, not {among}")
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (None, None)
        if first is not None and first == last and (message := await recollection.read(first, session)):
            # Of a long one, each line with the words: a result may have a million of them.
            lines = _lines(whole_text(message), asked, page)
            if lines:
                recollection.showed(first, lines, session)
                return lines
        found = await recollection.find(asked, first, last, session)
        return found or say(NOTHING, recollection.lang)

    if others:

        @made
        async def recall_from(query: str, entries: str = "", page_number: int = 1, session: str = "") -> str:
            """Look up what was said or shown earlier and is no longer in view, in this session or others.

            Args:
                query: what to look for; or the number of an entry, to read it whole
                entries: only among these, as 10-20; of a single one, lines with the words
                page_number: of a long entry
                session: another one, by the name that stands before the number of an entry of it
            """
            return await looked_up(query, entries, page_number, session)

        return recall_from

    @made
    async def recall(query: str, entries: str = "", page_number: int = 1) -> str:
        """Look up what was said or shown earlier and is no longer in view.

        Args:
            query: what to look for; or the number of an entry, to read it whole
            entries: only among these, as 10-20; of a single one, lines with the words
            page_number: of a long entry
        """
        return await looked_up(query, entries, page_number)

    return recall


def _lines(text: str, asked: str, characters: int) -> str:
    """The lines of a text of several pages in which all of the words stand, each with its page; empty where
    none does."""
    if len(text) <= characters:
        return ""
    words = asked.casefold().split()
    shown, left, at, room = list[str](), 0, 0, characters - 100
    for line in text.splitlines(keepends=True):
        page, at = at // characters + 1, at + len(line)
        low = line.casefold()
        if all(word in low for word in words):
            told = f"page {page}: {line.strip()[:LONGEST_LINE]}"
            room -= len(told) + 1
            if room > 0:
                shown.append(told)
            else:
                left += 1
    return "\n".join([*shown, f"[{left} more lines have these words]"] if left else shown)


def _page(text: str, way: str, entry: int, number: int, characters: int) -> str:
    pages = max(-(-len(text) // characters), 1)
    if not 1 <= number <= pages:
        raise ToolError(f"error: entry {entry} has {pages} pages, counted from 1")
    shown = text[(number - 1) * characters : number * characters]
    if pages == 1:
        return shown or "(the entry has no text)"
    more = f"; recall({way}, page_number={number + 1}) goes on" if number < pages else ""
    return f"{shown}\n[page {number} of {pages} of entry {entry}{more}]"
