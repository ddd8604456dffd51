"""Recall: what was said before and is no longer in view, found again and placed where it is needed.

It costs nothing where it fails: without an embedder words alone are searched, and a search that can't
be made places nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import anyio
import anyio.to_thread

from perdure.agent.conversation import Conversation, said
from perdure.chat.encodings import as_shown
from perdure.chat.language import Language
from perdure.chat.messages import Kind, Message, text_of
from perdure.chat.plans import request_of
from perdure.chat.secrets import masked
from perdure.config import Reach
from perdure.errors import PerdureError, ToolError
from perdure.memory.excerpts import excerpt, frame_tokens, marked, stands_in, tokens_of_line, tokens_of_next
from perdure.memory.passages import RECALL, Passage, Pool, Query
from perdure.memory.ranking import Scored, foremost, found, ranked, relevant, within
from perdure.memory.words import words_of
from perdure.models.embedder import Embedder
from perdure.store.archive import Archive, Scope

#: Characters of a text that are looked for; of a longer one, the beginning and the end.
LOOKED_FOR = 2_000
#: Share of the budget that an excerpt may have: of one that comes by itself, and of one asked for.
AUTOMATIC_SHARE, ASKED_SHARE = 0.1, 0.2
#: Tokens of an excerpt that was asked for, at most.
MOST_ASKED = 4_000
#: Seconds that a turn waits for its excerpt.
PATIENCE = 5.0
#: Seconds before the first texts are embedded, so that a turn begins undisturbed, and between two looks.
BEHIND = 1.0
#: A number beyond those of all entries.
NEWEST = 10**9
#: Texts that are embedded at once, behind the work.
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Passages as a text for the model, and how many tokens that has."""

    passages: Sequence[Passage]
    text: str
    tokens: int

    @property
    def recalled(self) -> list[tuple[str, int]]:
        """Session and entry of each."""
        return list(dict.fromkeys((each.session, each.entry) for each in self.passages))


class Recaller:
    """Searches the archive. Blocking; threads may share it."""

    def __init__(self, archive: Archive, embedder: Embedder | None) -> None:
        self.archive = archive
        self.embedder = embedder
        self._embedding = threading.Lock()

    def search(self, text: str, scope: Scope) -> list[Scored]:
        """What is nearest to the text, best first. Raises `StoreError`."""
        return found(*self._found(text, scope))

    def excerpt(
        self,
        text: str,
        scope: Scope,
        *,
        limit: int,
        count: Callable[[str], int],
        lang: Language,
        about: bool = True,
        readable: bool = False,
        shown: Sequence[str] = (),
    ) -> Excerpt | None:
        """An excerpt of at most ``limit`` tokens of what is nearest to the text, and with ``about`` only of
        what is about it; None where nothing is, or where it can't be searched. ``readable``: the tool
        `recall` is there, and is named where entries stand in it only in part; ``shown``: excerpts in view,
        whose passages aren't placed again."""

        def counted(text: str) -> int:
            return count(as_shown(text))

        room = limit - frame_tokens(count, lang)
        if room <= 0:
            return None
        try:
            query, pool, scored = self._found(text, scope)
        except PerdureError:
            return None
        scored = relevant(query, pool, scored) if about else foremost(found(query, pool, scored))
        pieces = {each.id: each for each in _in_part(pool.passages)}
        scored = [replace(each, passage=pieces.get(each.passage.id, each.passage)) for each in scored]
        session = scope.session
        scored = [
            each for each in scored if not any(stands_in(each.passage, text, session, lang) for text in shown)
        ]

        def fitting(room: int) -> list[Passage]:
            lines = tokens_of_line(session, lang, counted), tokens_of_next(session, lang, counted)
            return within(scored, room, *lines)

        def shown_with(chosen: Sequence[Passage], cut: Passage | None) -> Excerpt:
            shown = as_shown(excerpt(chosen, session, lang, asked=not about, cut=cut))
            return Excerpt(chosen, shown, count(shown))

        chosen = fitting(room)
        if not chosen:
            return None
        whole = shown_with(chosen, None)
        if not readable or not (cut := [each for each in chosen if each.id in pieces]):
            return whole
        # How to read on has its room where that leaves enough for what is found.
        needed = shown_with(chosen, cut[0]).tokens - whole.tokens
        fewer = fitting(room - needed)
        named = next((each for each in fewer if each.id in pieces), None)
        told = shown_with(fewer, named) if named else whole
        return told if told.tokens <= limit else whole

    def embed_some(self, scope: Scope | None = None) -> int:
        """Give the newest passages in scope (None: of all sessions) that have none a vector; how many there
        were, 0 where all have one or there is no embedder. Raises `PerdureError`."""
        if self.embedder is None:
            return 0
        with self._embedding:
            sends = _sends(self.embedder)
            waiting = self.archive.without_vector(self.embedder.name, AT_ONCE, scope, sends)
            if waiting:
                vectors = self.embedder.embed([text for _, text in waiting])
                ids = (id for id, _ in waiting)
                self.archive.keep_vectors(self.embedder.name, dict(zip(ids, vectors, strict=True)))
        return len(waiting)

    def _found(self, text: str, scope: Scope) -> tuple[Query, Pool, list[Scored]]:
        query = self._query(text)
        pool = self.archive.pool(query, scope)
        return query, pool, ranked(query, pool)

    def _query(self, text: str) -> Query:
        said, text = text, _ends(text)
        query = Query(text, tuple(words_of(text, asking=True)))
        if self.embedder is None or not text.strip():
            return query
        # Before it is cut: half a secret doesn't look like one.
        asked = _ends(masked(said)) if _sends(self.embedder) else text
        try:
            (vector,) = self.embedder.embed([asked], asking=True)
        except PerdureError:
            return query
        return replace(query, vector=vector, embedder=self.embedder.name)


def _in_part(passages: Sequence[Passage]) -> Iterator[Passage]:
    """Of passages with their neighbours those that aren't the whole of their entry, marked so."""
    places = {(each.session, each.entry, each.part) for each in passages}
    for each in passages:
        more = (each.session, each.entry, each.part + 1) in places
        if each.part or more:
            yield marked(each, more=more)


def _ends(text: str) -> str:
    """What is looked for of a text."""
    half = LOOKED_FOR // 2
    return text if len(text) <= LOOKED_FOR else f"{text[:half]}\n{text[-half:]}"


def _sends(embedder: Embedder) -> bool:
    """Whether what it embeds leaves the process."""
    return bool(getattr(embedder, "sends", False))


class Recollection:
    """Recall in one conversation: what comes by itself with a request, and what the tool `recall` asks."""

    def __init__(self, recaller: Recaller, reach: Reach = "session") -> None:
        self._recaller = recaller
        self._reach: Reach = reach
        self._conversation: Conversation | None = None
        #: Results of the message that is being answered, and all that each may be of.
        self._quoted: dict[str, set[tuple[str, int]]] = {}

    def begin(self, conversation: Conversation) -> None:
        """Serve this conversation."""
        self._conversation = conversation

    @property
    def lang(self) -> Language:
        return self._of().lang

    @property
    def room(self) -> int:
        """Tokens that a message takes at most that is an excerpt for a request."""
        return self._limit + self._of().memory.counter.message(said(""))

    @property
    def _limit(self) -> int:
        return int(self._of().budget.tokens * AUTOMATIC_SHARE)

    async def for_request(self, request: str) -> Excerpt | None:
        """What belongs to a new request, or to the task of a step, and isn't in view; None where nothing
        does."""
        conversation = self._of()
        if self._reach == "session" and not (conversation.memory.hides or conversation.lane):
            return None
        with anyio.move_on_after(PATIENCE):
            memory = conversation.memory
            # A step is told its turn's request, and what other steps of it found stands in the plan.
            hidden = ((request_of(conversation.lane), NEWEST),) if conversation.lane else memory.shown
            scope = Scope(conversation.session, self._reach, hidden=hidden)
            return await self._excerpt(request, scope, self._limit, about=True)
        return None

    async def find(self, query: str, first: int | None, last: int | None, session: str = "") -> str:
        """As `perdure.tools.recall.Recollection.find`."""
        conversation = self._of()
        other = self._other(session)
        memory = conversation.memory
        # The turn's own words are no find.
        asked = max((entry.seq for entry in memory.entries if entry.kind is Kind.USER), default=memory.newest)
        between = (first or 1, last or max(asked - 1, 1)) if first or last else None
        hidden = memory.shown if conversation.lane else ((asked, memory.newest),)
        scope = Scope(conversation.session, self._reach, between, hidden, only=other)
        limit = min(int(conversation.budget.tokens * ASKED_SHARE), MOST_ASKED)
        found = await self._excerpt(query, scope, limit, about=False)
        if found is None:
            return ""
        self._quoted.setdefault(found.text, set()).update(found.recalled)
        return found.text

    async def read(self, entry: int, session: str = "") -> Message | None:
        """As `perdure.tools.recall.Recollection.read`. Of another session what can be found is read, so not
        what it has itself from further away."""
        conversation = self._of()
        other = self._other(session)
        if other and not self._recaller.archive.holds(other, entry):
            return None
        journal, session = conversation.journal, other or conversation.session
        found = journal.entries(session, [entry])
        if not found:
            return None
        whole = journal.whole(session, entry) if found[0].kind is Kind.TOOL_RESULT else None
        return {**found[0].message, "content": whole} if whole is not None else found[0].message

    async def entry_of(self, name: str) -> int | None:
        """As `perdure.tools.recall.Recollection.entry_of`."""
        conversation = self._of()
        return conversation.journal.entry_of(conversation.session, name)

    def showed(self, entry: int, text: str, session: str = "") -> None:
        """As `perdure.tools.recall.Recollection.showed`."""
        source = (session or self._of().session, entry)
        self._quoted.setdefault(as_shown(text), set()).add(source)

    def quoted(self, text: str) -> Sequence[tuple[str, int]]:
        """Session and entry of each excerpt in a result of the tool. Calls of one message may have the same
        result, in any order: each is linked to what any of them quotes."""
        return sorted(self._quoted.get(text, ()))

    def answered(self) -> None:
        """All calls of a message have their results, and nobody asks for what these quote any more."""
        self._quoted.clear()

    def _other(self, session: str) -> str:
        """Another session that recalling reaches, empty for this one. Raises `ToolError`."""
        own = self._of().session
        if session in {"", own}:
            return ""
        if not self._recaller.archive.reaches(Scope(own, self._reach), session):
            raise ToolError(f"error: there is no session {session!r} to recall from")
        return session

    async def _excerpt(self, text: str, scope: Scope, limit: int, *, about: bool) -> Excerpt | None:
        conversation = self._of()
        readable = any(tool.name == RECALL for tool in conversation.tools)
        placed = [each.message for each in conversation.memory.entries if each.kind is Kind.RECALL]
        return await anyio.to_thread.run_sync(
            lambda: self._recaller.excerpt(
                text,
                scope,
                limit=limit,
                count=conversation.count,
                lang=conversation.lang,
                about=about,
                shown=[text_of(message) for message in placed] if about else (),
                readable=readable,
            ),
            abandon_on_cancel=True,
        )

    def _of(self) -> Conversation:
        if self._conversation is None:
            raise RuntimeError("begin() comes first")
        return self._conversation


async def embed_behind(recaller: Recaller | None, scope: Scope) -> None:
    """Give every passage in scope its vector while something else goes on, until it is cancelled. Of other
    sessions none: an embedder may be an endpoint, which needn't read them. Must not raise."""
    if recaller is None or recaller.embedder is None:
        return
    await anyio.sleep(BEHIND)
    while True:
        try:
            done = await anyio.to_thread.run_sync(recaller.embed_some, scope, abandon_on_cancel=True)
        except Exception:  # words alone are searched then, and another run may do better
            return
        if not done:
            await anyio.sleep(BEHIND)
