"""The sessions of a store: searched, copied, taken back, imported, forgotten. No model is asked."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from perdure.app.opening import open_archive, open_embedder, open_journal, path_of
from perdure.config import Settings
from perdure.errors import (
    ConfigError,
    EntryUnknown,
    PerdureError,
    SessionExists,
    SessionUnknown,
    StoreMissing,
    Words,
)

if TYPE_CHECKING:
    from perdure.agent.recalling import Recaller
    from perdure.agent.verifying import Verified
    from perdure.chat.foreign import History
    from perdure.chat.language import Language
    from perdure.chat.messages import Entry
    from perdure.chat.repair import Repair
    from perdure.memory.ranking import Scored
    from perdure.models.embedder import Embedder
    from perdure.store.archive import Archive
    from perdure.store.journal import Forgotten, Journal, NewEntry, Recorded, SessionSummary

#: Seconds that a search from outside a run waits until what has no vector yet gets one.
CATCHING_UP = 20.0
LONGEST_NAME = 200
NO_NAME: Words = (
    "a session's name has 1 to {longest} printable characters",
    "会话名应为 1 至 {longest} 个可显示的字符",
)


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of a file: the session, how many entries it has, and what was mended."""

    session: str
    entries: int
    history: History
    repairs: Sequence[Repair]


def checked_name(session: str) -> str:
    """The name, where a session may have it. Raises `ConfigError`."""
    if not session.strip() or not session.isprintable() or len(session) > LONGEST_NAME:
        raise ConfigError(NO_NAME, longest=LONGEST_NAME)
    return session


class Sessions:
    """``journal`` and ``archive`` take the place of those that the settings name; only what is opened here is
    closed. All calls that name a session raise `SessionUnknown` where it isn't, and those that write
    `SessionHeld` where another process has it."""

    def __init__(
        self, settings: Settings, *, journal: Journal | None = None, archive: Archive | None = None
    ) -> None:
        self.settings = settings
        self._given = (journal, archive)
        self._journal, self._archive = self._given
        self._recaller: Recaller | None = None
        self._embedder: Embedder | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened. A later call opens it anew."""
        journal, archive = self._given
        for mine, given in ((self._journal, journal), (self._archive, archive)):
            if mine is not None and mine is not given:
                mine.close()
        if self._embedder is not None:
            self._embedder.close()
        self._journal, self._archive = self._given
        self._recaller = self._embedder = None

    @property
    def is_there(self) -> bool:
        """There is a store already; where there is none, who only looks makes none."""
        return self._journal is not None or path_of(self.settings.store).exists()

    @property
    def journal(self) -> Journal:
        """The journal, made where it doesn't exist."""
        if self._journal is None:
            self._journal = open_journal(self.settings.store)
        return self._journal

    @property
    def archive(self) -> Archive | None:
        if self._archive is None:
            self._archive = open_archive(self.journal)
        return self._archive

    @property
    def recaller(self) -> Recaller | None:
        """Who searches the archive; None where there is none."""
        if self._recaller is None and (archive := self.archive) is not None:
            from perdure.agent.recalling import Recaller

            self._embedder = open_embedder(self.settings)
            self._recaller = Recaller(archive, self._embedder)
        return self._recaller

    @contextmanager
    def held(self, session: str) -> Iterator[None]:
        """Have a session: nobody else writes it meanwhile."""
        self.journal.hold(session)
        try:
            yield
        finally:
            self.journal.release(session)

    def listed(self) -> Sequence[SessionSummary]:
        """All sessions, the one that changed last first."""
        return self.journal.sessions() if self.is_there else ()

    def existing(self, session: str) -> str:
        if not self.is_there:
            raise StoreMissing(name=session, path=path_of(self.settings.store))
        if not self.journal.exists(session):
            raise SessionUnknown(name=session)
        return session

    def records(self, session: str) -> Iterator[Entry | Recorded]:
        """All that happened in a session, in order."""
        self.existing(session)
        return self.journal.records(session)

    def count(self, session: str) -> int:
        """How many entries a session has."""
        return next((each.entries for each in self.listed() if each.name == session), 0)

    def undone(self, session: str) -> frozenset[int]:
        """Numbers of the entries of turns that were taken back."""
        from perdure.agent.undone import undone_entries

        return undone_entries(self.records(session))

    def newest(self) -> SessionSummary | None:
        """The session of this workspace that changed last."""
        workspace = str(self.settings.workspace)
        return next((each for each in self.listed() if each.workspace == workspace), None)

    def recall(
        self, session: str, query: str, limit: int = 10, *, waits: float = CATCHING_UP
    ) -> list[Scored]:
        """What in the archive is nearest to a query, best first, one passage an entry. ``waits``: seconds
        that passages may take to get their vectors first."""
        from perdure.store.archive import Scope

        self.existing(session)
        recaller = self.recaller
        if recaller is None:
            return []
        self.catch_up(session, waits)
        found: dict[tuple[str, int], Scored] = {}
        for each in recaller.search(query, Scope(session, self.settings.memory)):
            found.setdefault((each.passage.session, each.passage.entry), each)
        return list(found.values())[:limit]

    def behind(self, session: str) -> int:
        """Entries that a search from a session reaches and can't find yet, since the store couldn't take them
        in. Raises `StoreError`."""
        from perdure.store.archive import Scope

        scope = Scope(session, self.settings.memory)
        return self.archive.behind(scope) if self.archive is not None else 0

    def catch_up(
        self,
        session: str,
        seconds: float = CATCHING_UP,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> bool:
        """Give passages that a search from a session reaches and that have no vector one, for so long at
        most; False where that was too short. What can't be embedded is found by its words alone.
        ``on_progress`` gets the number of passages that have one since."""
        from perdure.store.archive import Scope

        scope = Scope(session, self.settings.memory)
        end = time.monotonic() + seconds
        done = 0
        with suppress(PerdureError):
            while self.recaller is not None:
                if time.monotonic() >= end:
                    return False
                if not (more := self.recaller.embed_some(scope)):
                    break
                done += more
                if on_progress is not None:
                    on_progress(done)
        return True

    def undo_turn(self, session: str) -> tuple[int, int] | None:
        """Take a session's last turn back: its first and last entry, or None where there is none. What tools
        did stays done; the entries can still be read, and are neither searched nor sent any more."""
        from perdure.agent.undone import standing

        with self.held(self.existing(session)):
            turn = standing(self.records(session)).turn
            if turn:
                self.journal.record(session, "turn.undone", {"first": turn[0], "last": turn[1]})
        return turn

    def undo_files(self, session: str) -> Mapping[str, str]:
        """Take back what tools changed in files in a session's last turn: for each path, relative to the
        session's workspace, what came of it (see `perdure.tools.changes.restore`). What somebody changed
        since stays, and what commands changed isn't known. Before `undo_turn`, since this goes by the turn.
        Raises `StoreError` where it can't be journaled, and then nothing is changed."""
        from perdure.agent.changes import kept_changes
        from perdure.agent.undone import standing
        from perdure.store.journal import Recorded
        from perdure.tools.changes import restore

        with self.held(self.existing(session)):
            turn = standing(self.records(session)).turn
            kept = list(kept_changes(self.records(session), *turn)) if turn else []
            if not kept or not turn:
                return {}
            created = next(each for each in self.records(session) if isinstance(each, Recorded))
            workspace = Path(str(created.body.get("workspace") or self.settings.workspace))
            about = {"first": turn[0], "last": turn[1], "paths": sorted({each.path for each in kept})}
            self.journal.record(session, "files.undone", about)
            return restore(workspace, kept)

    def undo_compaction(self, session: str) -> Sequence[int] | None:
        """Take a session's last compaction back, with its summary: the numbers of the entries that stand in
        the window again, or None where there is none."""
        from perdure.agent.overview import overview
        from perdure.agent.undone import standing

        with self.held(self.existing(session)):
            if not standing(self.records(session)).compaction:
                return None
            before = {entry for entry, _ in overview(self.journal, session).standing}
            self.journal.record(session, "compaction.undone", {})
            after = [entry for entry, _ in overview(self.journal, session).standing]
        return [entry for entry in after if entry not in before]

    def fork(self, session: str, new: str, at: int | None = None) -> int:
        """A session of its own with everything up to entry ``at`` (by default the last one), which is handed
        back. Raises `SessionExists`, and `EntryUnknown` where there is no such entry."""
        from perdure.chat.messages import Kind

        checked_name(new)
        count = self.count(self.existing(session))
        at = count if at is None else at
        if not 1 <= at <= count:
            raise EntryUnknown(name=session, number=at, count=count)
        if self.journal.entries(session, [at])[0].kind is Kind.RECALL:
            if at == 1:
                raise EntryUnknown(name=session, number=at, count=count)
            at -= 1  # an excerpt belongs to the request behind it
        self.journal.fork(session, new, at)
        return at

    def holding(self, session: str, query: str) -> list[int]:
        """Numbers of the entries in which all words of the query stand, whoever said them."""
        from perdure.chat.messages import Entry
        from perdure.memory.passages import whole_text
        from perdure.memory.words import words_of

        wanted = set(words_of(query))
        entries = (each for each in self.records(session) if isinstance(each, Entry))
        return [each.seq for each in entries if wanted and wanted <= set(words_of(whole_text(each.message)))]

    def elsewhere(
        self, session: str, numbers: Sequence[int], *, forks: bool = True
    ) -> Mapping[str, Sequence[int]]:
        """Where else these entries stand, or excerpts of them, by session, the same one too: what `forget`
        reaches besides. Without ``forks`` only excerpts: what `remove` reaches."""
        self.existing(session)
        places = dict(self.journal.reached(session, numbers, forks=forks))
        places[session] = sorted(set(places[session]).difference(numbers))
        return {name: found for name, found in places.items() if found}

    def forget(self, session: str, numbers: Sequence[int]) -> Forgotten:
        """Remove the words of entries for good, and all that was made from them."""
        from perdure.agent.forgetting import blanked

        self.existing(session)
        return self.journal.forget(session, numbers, blanked)

    def remove(self, session: str) -> Forgotten:
        """Remove a session for good."""
        from perdure.agent.forgetting import blanked

        self.existing(session)
        return self.journal.remove(session, blanked)

    def verify(self, session: str) -> Verified:
        """Whether a session's journal gives the prompts that were sent, byte for byte."""
        from perdure.agent.verifying import verified

        self.existing(session)
        return verified(self.journal, session)

    def import_history(self, history: History, session: str) -> Imported:
        """A new session from a conversation of elsewhere, mended where it must be, whole or not at all.
        Damaged records are kept in it as they were. Raises `SessionExists`."""
        from perdure.agent.prompts import SYSTEM
        from perdure.chat.language import language_of, say
        from perdure.chat.messages import Kind, text_of
        from perdure.chat.tokens import counter_for

        if self.journal.exists(checked_name(session)):
            raise SessionExists(name=session)
        mended, repairs = history.mended()
        asked = next((text_of(message) for kind, message, *_ in mended if kind is Kind.USER), "")
        told = history.settings.get("lang")
        lang: Language = told if told in ("en", "zh") else language_of(asked)
        workspace = str(self.settings.workspace)
        usual = say(SYSTEM, lang, workspace=workspace, date=datetime.now(UTC).date())
        given = history.settings.get("system")
        system = given if given and isinstance(given, str) else usual
        counter = counter_for(None)
        entries: list[NewEntry] = [
            (kind, message, counter.message(message), time, lane) for kind, message, time, lane in mended
        ]
        about = {
            "form": history.form,
            "conversations": history.conversations,
            "left_out": [each.say("en") for each in history.left_out],
            "damages": len(history.damages),
            "repairs": [each.what for each in repairs],
        }
        damages = [
            {"line": each.line, "bytes": base64.b64encode(each.raw).decode()} for each in history.damages
        ]
        settings = {"system": system, "lang": lang, "workspace": workspace}
        events = [("session.imported", about), *(("import.damage", each) for each in damages)]
        # At once, so that an import that is ended in the middle leaves no part that looks like a session.
        if not self.journal.create(session, settings, entries, events):
            raise SessionExists(name=session)
        return Imported(session, len(entries), history, repairs)
