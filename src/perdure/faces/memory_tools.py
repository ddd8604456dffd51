"""What `perdure mcp` gives other agents: the memory of this one, as tools.

Only what lies in reach can be found, read or listed: the sessions of the workspace, or all of them where the
person said so. Secrets are masked, as in an export. What another agent wants kept goes into sessions of
notes, which nobody talks in: put into a conversation, it would stand there as words of the person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.agent.prompts import SYSTEM
from perdure.app import Sessions
from perdure.app.sessions import checked_name
from perdure.chat.language import Language, language_of, say
from perdure.chat.messages import Kind
from perdure.chat.secrets import masked
from perdure.chat.tokens import counter_for
from perdure.errors import EntryUnknown, PerdureError, SessionUnknown, ToolError, Words
from perdure.memory.excerpts import FOUND, line
from perdure.memory.passages import Passage, whole_text
from perdure.store.archive import Scope
from perdure.store.journal import Recorded, SessionSummary
from perdure.tools.contract import Tool
from perdure.tools.registry import tool

#: Characters of a page of an entry, and of a note; and what is found and listed at most.
PAGE, LONGEST_NOTE, MOST = 8_000, 20_000, 50
OUTPUT_LIMIT = 60_000
#: The session of notes where none is named.
NOTES = "notes"

NOTHING: Words = ("nothing is found about that", "没有找到相关内容")
KEPT: Words = ("kept as entry {entry} of the session {session}", "已保存为会话 {session} 的第 {entry} 条")
NO_QUERY: Words = ("the query is empty", "查询内容为空")
EMPTY_NOTE: Words = ("the note is empty", "笔记为空")
LONG_NOTE: Words = (
    "the note has {length} characters, and {most} are the most: keep it in parts",
    "笔记有 {length} 个字符，最多 {most} 个：请分成几部分保存",
)
CONVERSATION: Words = (
    "the session {session} is a conversation, and a note would stand in it as words of the person: name "
    "another session, or none",
    "会话 {session} 是一段对话，笔记会被当作用户的话：请指定别的会话，或不指定",
)
NO_PAGE: Words = (
    "entry {entry} has {pages} {pages:page|pages}, counted from 1",
    "第 {entry} 条有 {pages} 页，从 1 开始",
)


@dataclass(frozen=True, slots=True)
class MemoryTools:
    """Tools over the sessions in reach. ``writes``: notes can be kept."""

    sessions: Sessions
    lang: Language
    writes: bool = True

    def tools(self) -> list[Tool]:
        looking = tool(effect="reads", output_limit=OUTPUT_LIMIT)

        def recall(query: str, session: str = "", limit: int = 8) -> str:
            """Search what was said and shown in earlier sessions, by words and by meaning.

            Args:
                query: what to look for
                session: only in this one
                limit: entries at most
            """
            return self._told(lambda: self._recall(query, session, limit))

        def read_entry(session: str, number: int, page: int = 1) -> str:
            """Read an entry of a session whole, page by page.

            Args:
                session: its name
                number: of the entry
                page: from 1
            """
            return self._told(lambda: self._read(session, number, page))

        def sessions(limit: int = 20) -> str:
            """List the sessions that there are, the one that changed last first, one JSON object a line.

            Args:
                limit: sessions at most
            """
            return self._told(lambda: "\n".join(self._listed(limit)))

        def remember(note: str, session: str = NOTES) -> str:
            """Keep a note, so that it is found again later, by any agent that works here.

            Args:
                note: what to keep, understandable by itself
                session: the session of notes to keep it in
            """
            return self._told(lambda: self._remember(note, session))

        writing = [tool(effect="acts")(remember)] if self.writes else []
        return [looking(recall), looking(read_entry), looking(sessions), *writing]

    def _told(self, work: Callable[[], str]) -> str:
        """What the work says; what is wrong, in the person's language."""
        try:
            return work()
        except ToolError:
            raise
        except PerdureError as error:
            raise ToolError(error.say(self.lang)) from error

    def _recall(self, query: str, session: str, limit: int) -> str:
        if not query.strip():
            raise PerdureError(NO_QUERY)
        if session:
            self._reached(session)
        newest = next(iter(self._all()), None)
        recaller = self.sessions.recaller if newest is not None else None
        if newest is None or recaller is None:
            return say(NOTHING, self.lang)
        scope = Scope(newest.name, self.sessions.settings.memory, only=session)
        found: dict[tuple[str, int], Passage] = {}
        for each in recaller.search(query, scope):
            found.setdefault((each.passage.session, each.passage.entry), each.passage)
        shown = [line(each, "", self.lang) for each in [*found.values()][: _most(limit)]]
        if not shown:
            return say(NOTHING, self.lang)
        return masked("\n".join([say(FOUND, self.lang), *shown]))

    def _read(self, session: str, number: int, page: int) -> str:
        count = self._reached(session).entries
        entries = self.sessions.journal.entries(session, [number]) if 1 <= number <= count else []
        if not entries:
            raise EntryUnknown(name=session, number=number, count=count)
        text = masked(whole_text(entries[0].message))
        pages = max(-(-len(text) // PAGE), 1)
        if not 1 <= page <= pages:
            raise ToolError(say(NO_PAGE, self.lang, entry=number, pages=pages))
        shown = text[(page - 1) * PAGE : page * PAGE]
        return f"{shown}\n[{page}/{pages}]" if pages > 1 else shown

    def _listed(self, limit: int) -> Iterator[str]:
        for each in [*self._all()][: _most(limit)]:
            about = {
                "name": each.name,
                "changed": each.changed,
                "workspace": each.workspace,
                "entries": each.entries,
                "turns": each.turns,
                "request": masked(each.request),
            }
            yield json.dumps(about, ensure_ascii=False)

    def _remember(self, note: str, session: str) -> str:
        if not note.strip():
            raise PerdureError(EMPTY_NOTE)
        if len(note) > LONGEST_NOTE:
            raise PerdureError(LONG_NOTE, length=len(note), most=LONGEST_NOTE)
        journal = self.sessions.journal
        workspace = self.sessions.settings.workspace
        if not journal.exists(checked_name(session)):
            lang = language_of(note)
            system = say(SYSTEM, lang, workspace=workspace, date=datetime.now(UTC).date())
            about = {"system": system, "lang": lang, "workspace": str(workspace), "notes": True}
            journal.create(session, about)
        self._reached(session)
        if not self._is_of_notes(session):
            raise PerdureError(CONVERSATION, session=session)
        message = {"role": "user", "content": note}
        with self.sessions.held(session):
            (entry,) = journal.append(session, [(Kind.USER, message, counter_for(None).message(message))])
        return say(KEPT, self.lang, entry=entry.seq, session=session)

    def _is_of_notes(self, session: str) -> bool:
        """It was made for notes, and nobody has talked in it since."""
        for record in self.sessions.records(session):
            if isinstance(record, Recorded):
                if record.type == "session.created" and not record.body.get("notes"):
                    return False
            elif record.kind is not Kind.USER:
                return False
        return True

    def _all(self) -> Iterator[SessionSummary]:
        """Those in reach, the one that changed last first."""
        settings = self.sessions.settings
        for each in self.sessions.listed():
            if settings.memory == "all" or each.workspace == str(settings.workspace):
                yield each

    def _reached(self, session: str) -> SessionSummary:
        """Raises `SessionUnknown` where there is none of that name in reach."""
        for each in self._all():
            if each.name == session:
                return each
        raise SessionUnknown(name=session)


def _most(limit: int) -> int:
    return max(1, min(limit, MOST))
