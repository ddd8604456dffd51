"""The archive in SQLite: what was said is found by words and by meaning, and what wasn't said is not."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from embeddings_endpoint import EmbeddingsEndpoint
from perdure.agent.forgetting import blanked
from perdure.agent.recalling import AT_ONCE, Recaller
from perdure.chat.messages import Kind, Message
from perdure.errors import PerdureError, SessionUnknown
from perdure.models.embedder import Embedder, SentenceEncoder
from perdure.models.embedding_endpoint import EndpointEmbedder
from perdure.store.archive import Scope
from perdure.store.forks import copied
from perdure.store.migrations import MIGRATIONS
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive
from perdure.store.vectors import CENTRED

FILLER = ("We looked at the parser.", "The menu is renamed.", "缓存层处理好了。", "Nothing changed there.")


class OneWord:
    """An embedder for which two texts are alike where they begin with the same letter; and a broken one."""

    def __init__(self, name: str, dimensions: int = 32, *, breaks: bool = False) -> None:
        self.name = name
        self.dimensions = dimensions
        self.breaks = breaks
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str], *, asking: bool = False) -> Any:
        if self.breaks:
            raise PerdureError("down")
        vectors = numpy.zeros((len(texts), self.dimensions), numpy.float32)
        for row, text in enumerate(texts):
            vectors[row, ord(text[:1] or " ") % self.dimensions] = 1.0
        if not asking:
            self.embedded += texts
        return vectors

    def close(self) -> None:
        pass


class Kept:
    """A journal and the archive of the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = SqliteJournal(path)
        self.archive = SqliteArchive(path)

    def says(
        self, *texts: str, session: str = "s", workspace: str = "/w", kind: Kind = Kind.USER
    ) -> list[int]:
        role = "assistant" if kind is Kind.ASSISTANT else "user"
        return self.adds(
            *((kind, {"role": role, "content": text}) for text in texts), session=session, workspace=workspace
        )

    def adds(self, *said: tuple[Kind, Message], session: str = "s", workspace: str = "/w") -> list[int]:
        self.journal.create(session, {"workspace": workspace, "lang": "en"})
        return [each.seq for each in self.journal.append(session, [(*each, 5) for each in said])]

    def calls(self, tool: str, arguments: str, result: str, id: str = "c") -> list[int]:
        call = {"id": id, "type": "function", "function": {"name": tool, "arguments": arguments}}
        return self.adds(
            (Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]}),
            (Kind.TOOL_RESULT, {"role": "tool", "tool_call_id": id, "content": result}),
        )

    def finds(self, query: str, embedder: Embedder | None = None, **scope: Any) -> list[tuple[str, int]]:
        """Session and entry of each passage, the best one first."""
        asked = Scope(**{"session": "s", **scope})
        found = Recaller(self.archive, embedder).search(query, asked)
        return [(each.passage.session, each.passage.entry) for each in found]

    def holders(self, query: str, **scope: Any) -> set[int]:
        """The entries that are candidates by their words, without the neighbours that come with them."""
        from perdure.memory.passages import Query
        from perdure.memory.words import words_of

        words = tuple(words_of(query))
        pool = self.archive.pool(Query(query, words), Scope(**{"session": "s", **scope}))
        candidates = (each for each, chosen in zip(pool.passages, pool.candidate, strict=True) if chosen)
        return {each.entry for each in candidates if set(words) & set(each.words)}

    def embeds(self, embedder: Embedder) -> int:
        recaller = Recaller(self.archive, embedder)
        done = 0
        while some := recaller.embed_some():
            done += some
        return done

    def rows(self, query: str) -> list[Any]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def close(self) -> None:
        self.archive.close()
        self.journal.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path / "sessions.db")
    kept.says(*FILLER)
    yield kept
    kept.close()


@pytest.fixture(scope="module")
def encoder() -> Iterator[SentenceEncoder]:
    encoder = SentenceEncoder()
    yield encoder
    encoder.close()


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("The gateway rotates its keys.", "rotating key"),
        ("网关密钥每月十七号轮换一次。", "密钥"),
        ("网关密钥每月十七号轮换一次。", "轮换"),
        ("小周负责支付回调模块", "小周"),
        ("call rotateGatewayKey here", "rotateGatewayKey"),
        ("call rotateGatewayKey here", "gateway"),
        ("see ledger_writer_v2 first", "ledger_writer_v2"),
        ("see ledger_writer_v2 first", "writer"),
        ("it is in src/billing/ledger.py", "src/billing/ledger.py"),
        ("it is in src/billing/ledger.py", "ledger.py"),
        ("it is in src/billing/ledger.py", "billing"),
        ("it failed with ERR_QUOTA_771", "ERR_QUOTA_771"),
        ("it failed with ERR_QUOTA_771", "quota"),
        ("it failed with ERR_QUOTA_771", "771"),
        ("it failed with HTTP-503", "503"),
        ("C++ is not C#", "C++"),
        ("der Größte Café", "cafe"),
        ("https://example.org/a?b=c", "example.org"),
        ('He said "stop" AND NOT (OR *)', '"stop" AND NOT (OR *)'),
        ("well done 🙂", "🙂"),
        ("🙂🙂", "🙂"),
        ("カタカナ テスト", "タ"),
        ("한국어 문장입니다", "어"),
        ("船在港口", "港"),
        ("我喜欢你", "你"),
        ("you are my who", "who my"),
        ("in der ſtraße", "strasse"),
        ("a \u200bquok\u200bka", "quokka"),
    ],
)
def test_words_are_found_whole_and_in_parts(kept: Kept, said: str, asked: str) -> None:
    (entry,) = kept.says(said)
    assert kept.finds(asked)[0] == ("s", entry)
    assert kept.holders(asked) == {entry}


@pytest.mark.parametrize(
    "asked",
    ["", "   ", "xylophone", "木琴", "?!", "\x00", "\ud800", '"', "thy who", "NOT", "*", "🎺", "\u200b"],
)
def test_a_query_that_nothing_holds_finds_nothing(kept: Kept, asked: str) -> None:
    assert kept.holders(asked) == set()


def test_words_that_say_nothing_find_those_that_hold_all_of_them_first(kept: Kept) -> None:
    kept.says("Who is the one on stage?", "They are the best.")
    (entry,) = kept.says("I saw The Who in Leeds.")
    assert kept.finds("the who")[0] == ("s", entry)
    assert kept.finds("The Who?")[0] == ("s", entry)


def test_a_sign_beside_words_changes_nothing_of_what_they_find(kept: Kept) -> None:
    kept.says("The wombat lives in Delft. 🙂", "🙂", "The wombat sleeps.", "🙂 fine")
    assert kept.finds("where does the wombat live 🙂") == kept.finds("where does the wombat live")


def test_calls_and_results_are_found_by_what_stands_in_them(kept: Kept) -> None:
    call, result = kept.calls("bash", json.dumps({"command": "make zebra\nrm gnu"}), "exit code 41: yak")
    assert kept.holders("zebra") == {call}
    assert kept.holders("gnu") == {call}
    assert kept.holders("yak") == {result}


def test_a_long_entry_is_found_by_any_of_its_parts(kept: Kept) -> None:
    text = "".join(f"Line {number} is about animal{number}. " for number in range(400))
    (entry,) = kept.says(text)
    for number in (0, 199, 399):
        assert kept.holders(f"animal{number}") == {entry}
    assert len(kept.rows(f"SELECT part FROM passage WHERE seq = {entry}")) > 10


def test_what_nobody_said_is_never_found(kept: Kept) -> None:
    for kind in (Kind.FEEDBACK, Kind.NOTICE, Kind.RECALL, Kind.PLAN):
        kept.says("The quokka sleeps.", kind=kind)
    kept.calls("recall", '{"query": "quokka"}', "[1] The quokka sleeps.", "r1")
    kept.journal.record("s", "summary", {"notes": "The quokka sleeps."})
    assert kept.holders("quokka sleeps") == set()
    call, result = kept.calls("bash", '{"command": "echo quokka"}', "quokka", "r2")
    assert kept.holders("quokka") == {call, result}


def test_of_calls_side_by_side_only_those_of_recall_and_their_results_are_left_out(kept: Kept) -> None:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": '{"query": "quokka"}'}}
        for at, name in enumerate(("recall", "bash"))
    ]
    # The results in a transaction of their own, as a run writes them.
    (call,) = kept.adds((Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": calls}))
    results = [
        kept.adds((Kind.TOOL_RESULT, {"role": "tool", "tool_call_id": f"c{at}", "content": "a quokka"}))[0]
        for at in range(2)
    ]
    assert kept.holders("quokka") == {call, results[1]}
    texts = [text for (text,) in kept.rows(f"SELECT text FROM passage WHERE seq = {call}")]
    assert len(texts) == 1
    assert texts[0].count("quokka") == 1


# --- where it is looked for -----------------------------------------------------------------------


def test_only_a_range_is_searched_or_all_but_what_is_hidden(kept: Kept) -> None:
    entries = kept.says(*(f"wombat number {at}" for at in range(6)))
    first, last = entries[2], entries[3]
    assert kept.holders("wombat", between=(first, last)) == {first, last}
    found = Recaller(kept.archive, None).search(
        "wombat", Scope("s", hidden=((first, last), (entries[5],) * 2))
    )
    best = {each.passage.entry for each in found[:3]}
    assert best == {entries[0], entries[1], entries[4]}
    for between in ((90, 99), (0, 0), (5, 4)):
        assert kept.holders("wombat", between=between) == set()


def test_the_reach_is_the_session_the_project_or_all_there_are(kept: Kept) -> None:
    kept.says("The wombat lives in Delft.", session="near")
    kept.says("The wombat lives in Ghent.", session="far", workspace="/elsewhere")
    assert kept.holders("wombat") == set()

    def sessions(**scope: Any) -> set[str]:
        return {session for session, _ in kept.finds("wombat", **scope)}

    assert sessions(reach="project") == {"near"}
    assert sessions(reach="all") == {"near", "far"}
    assert sessions(session="far", reach="project") == {"far"}
    with pytest.raises(SessionUnknown):
        kept.finds("wombat", session="nobody")


def test_one_session_is_searched_alone_where_it_is_in_reach(kept: Kept) -> None:
    (near,) = kept.says("The wombat lives in Delft.", session="near")
    kept.says("The wombat lives in Ghent.", session="far", workspace="/elsewhere")
    kept.says("The wombat lives in Leuven.")
    for between in (None, (near, near)):
        assert kept.finds("wombat", reach="project", only="near", between=between) == [("near", near)]
        with pytest.raises(SessionUnknown):
            kept.finds("wombat", reach="project", only="far", between=between)
    assert kept.holders("wombat", reach="project", only="near", between=(2, 9)) == set()
    reached = [kept.archive.reaches(Scope("s", "project"), name) for name in ("s", "near", "far", "none")]
    assert reached == [True, True, False, False]
    assert [kept.archive.holds("near", entry) for entry in (0, near, 2)] == [False, True, False]


def test_many_sessions_are_searched_as_few_are(kept: Kept) -> None:
    for number in range(20):
        kept.says(f"The wombat of room {number}.", session=f"x{number}", workspace=f"/{number % 2}")
    kept.says("A wombat again.", session="y", workspace="/0")
    found = {session for session, _ in kept.finds("wombat", session="y", reach="project")}
    assert found == {"y", *(f"x{number}" for number in range(0, 20, 2))}
    every = {session for session, _ in kept.finds("wombat", reach="all")}
    assert every == {"y", *(f"x{number}" for number in range(20))}


@pytest.mark.parametrize("others", [0, 12], ids=["few sessions", "many"])
@pytest.mark.parametrize("reach", ["project", "all"])
@pytest.mark.parametrize("session", ["s", "f", "g", "h", "i"])
def test_what_forks_share_is_found_once_and_not_where_it_is_in_view(
    kept: Kept, others: int, reach: Any, session: str
) -> None:
    first = kept.says("The wombat lives in Delft.")[0]
    kept.says("The wombat of s.")
    kept.journal.fork("s", "f", first)
    (second,) = kept.says("The wombat has a brother in Ghent.", session="f")
    kept.journal.fork("f", "g", second)
    kept.says("The wombat of g.", session="g")
    kept.journal.fork("s", "h", first)
    kept.journal.fork("g", "i", first)
    for number in range(others):
        kept.says(f"Nothing of room {number}.", session=f"x{number}")
    holds = {"s": {1}, "f": {1, 2}, "g": {1, 2}, "h": {1}, "i": {1}}
    embedder = OneWord("one")
    kept.embeds(embedder)
    texts = dict(enumerate(("lives in Delft", "in Ghent"), 1))
    numbers = {1: first, 2: second}

    def found(by: Embedder | None, hidden: Any = ()) -> list[tuple[str, str]]:
        hits = Recaller(kept.archive, by).search("The wombat", Scope(session, reach, hidden=hidden))
        return [(hit.passage.session, hit.passage.text) for hit in hits if "wombat" in hit.passage.text]

    for by in (None, embedder):
        every = found(by)
        for which, text in texts.items():
            where = [name for name, said in every if text in said]
            assert len(where) == 1, every
            assert where == [session] or which not in holds[session]
        for own in ("s", "g"):
            assert [name for name, said in every if f"wombat of {own}" in said] == [own]
        shown = tuple((numbers[which],) * 2 for which in sorted(holds[session]))
        in_view = found(by, shown)
        for which in holds[session]:
            assert not [name for name, said in in_view if texts[which] in said], in_view


def test_what_a_fork_alone_still_holds_is_found_in_it(kept: Kept) -> None:
    (entry,) = kept.says("The wombat lives in Delft.")
    kept.journal.fork("s", "f", entry)
    kept.journal.record("s", "turn.undone", {"first": entry, "last": entry})
    kept.says("Something else.")
    assert kept.finds("wombat", reach="project")[0] == ("f", entry)
    assert kept.finds("wombat", session="f", reach="project")[0] == ("f", entry)


@pytest.mark.parametrize("others", [0, 9])
def test_what_several_forks_alone_still_hold_is_found_in_one_of_them(kept: Kept, others: int) -> None:
    (first,) = kept.says("A quokka.")
    (entry,) = kept.says("The wombat lives in Delft.")
    for name, origin in (("f", "s"), ("g", "s"), ("h", "g")):
        kept.journal.fork(origin, name, entry)
    kept.journal.record("s", "turn.undone", {"first": entry, "last": entry})
    kept.says("Something else.")
    for number in range(others):
        kept.says(f"Nothing of room {number}.", session=f"x{number}")
    for session in ("s", "f", "g", "h"):
        found = [hit for hit in kept.finds("wombat", session=session, reach="project") if hit[1] == entry]
        assert len(found) == 1
        assert session == "s" or found == [(session, entry)]
        every = kept.finds("quokka", session=session, reach="project")
        assert [hit for hit in every if hit[1] == first] == [(session, first)]


def test_a_family_of_many_forks_is_asked_of_each_only_a_few_times(kept: Kept) -> None:
    (entry,) = kept.says("The wombat lives in Delft.")
    for number in range(40):
        kept.journal.fork("s", f"f{number}", entry)
        kept.says("A quokka.", session=f"f{number}")
    asked: list[int] = []

    def held(session: int, number: int) -> int:
        asked.append(session)
        return number

    connection = sqlite3.connect(kept.path)
    ids = [row[0] for row in connection.execute("SELECT id FROM session")]
    copies = copied(connection.cursor(), ids, ids[0], held)
    connection.close()
    assert copies == dict.fromkeys(ids[1:], entry)
    assert len(asked) <= 2 * len(ids)


@pytest.mark.parametrize("gone", ["s", "f"])
def test_forks_know_each_other_when_the_one_between_is_gone(kept: Kept, gone: str) -> None:
    (entry,) = kept.says("The wombat lives in Delft.")
    kept.journal.fork("s", "f", entry)
    kept.journal.fork("f", "g", entry)
    kept.journal.fork("s", "h", entry)
    kept.journal.remove(gone, blanked)
    kept.says("A quokka.", session=gone)
    for session in {"s", "f", "g", "h"} - {gone}:
        assert kept.finds("wombat", session=session, reach="project").count((session, entry)) == 1
        scope = Scope(session, "project", hidden=((entry, entry),))
        hits = Recaller(kept.archive, None).search("wombat", scope)
        assert not [hit for hit in hits if "wombat" in hit.passage.text]


# --- meaning --------------------------------------------------------------------------------------


def test_meaning_finds_what_has_no_word_in_common_in_either_language(
    kept: Kept, encoder: SentenceEncoder
) -> None:
    (cat,) = kept.says("My cat had four kittens last night.")
    (rain,) = kept.says("明天会下大雨，记得带伞。")
    kept.says(*FILLER)
    assert kept.embeds(encoder) == 10
    assert kept.finds("a pet gave birth", encoder)[0] == ("s", cat)
    assert kept.finds("weather forecast: wet", encoder)[0] == ("s", rain)
    assert kept.finds("天气预报", encoder)[0] == ("s", rain)


def test_without_vectors_and_without_an_embedder_that_works_words_are_searched(
    kept: Kept, encoder: SentenceEncoder
) -> None:
    (entry,) = kept.says("The certificate of the mail relay expires.")
    for embedder in (None, encoder, OneWord("broken", breaks=True)):
        assert kept.finds("mail certificate", embedder)[0] == ("s", entry)
    assert not kept.rows("SELECT * FROM vector"), "searching embeds no passage"


def test_the_newest_are_embedded_first_and_each_once(kept: Kept) -> None:
    kept.says(*(f"{letter} text" for letter in "abcdefghijklmnopqrstuvwxyz"))
    embedder = OneWord("one")
    assert Recaller(kept.archive, embedder).embed_some() == AT_ONCE
    assert embedder.embedded[0] == "z text"
    assert kept.embeds(embedder) == 30 - AT_ONCE
    assert sorted(embedder.embedded) == sorted({*embedder.embedded})
    assert kept.embeds(embedder) == 0
    kept.says("one more")
    assert kept.embeds(embedder) == 1


def test_vectors_that_came_before_a_crash_are_kept_and_the_rest_come_later(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    kept = Kept(path)
    kept.says(*(f"text {number}" for number in range(40)))
    program = (
        "import os, sys; from pathlib import Path; import numpy\n"
        "from perdure.store.sqlite_archive import SqliteArchive\n"
        "archive = SqliteArchive(Path(sys.argv[1]))\n"
        "for _ in range(2):\n"
        "    waiting = archive.without_vector('one', 10)\n"
        "    archive.keep_vectors('one', {id: numpy.eye(32, dtype='float32')[0] for id, _ in waiting})\n"
        "archive.without_vector('one', 10); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -9
    embedder = OneWord("one")
    assert kept.embeds(embedder) == 20
    assert kept.rows("SELECT count(*), count(DISTINCT passage) FROM vector") == [(40, 40)]
    kept.close()


def test_two_processes_that_embed_at_once_give_each_passage_one_vector(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    kept = Kept(path)
    kept.says(*(f"text {number}" for number in range(150)))
    program = (
        "import sys; from pathlib import Path; import numpy\n"
        "from perdure.store.sqlite_archive import SqliteArchive\n"
        "archive = SqliteArchive(Path(sys.argv[1]))\n"
        "while waiting := archive.without_vector('one', 8):\n"
        "    archive.keep_vectors('one', {id: numpy.eye(32, dtype='float32')[0] for id, _ in waiting})"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(2)]
    assert [each.wait(60) for each in running] == [0, 0]
    assert kept.rows("SELECT count(*), count(DISTINCT passage) FROM vector") == [(150, 150)]
    assert kept.archive.without_vector("one", 8) == []
    kept.close()


def test_another_embedder_embeds_anew_and_two_are_never_compared(kept: Kept) -> None:
    (apple,) = kept.says("apple pie")
    (zebra,) = kept.says("zebra crossing")
    one, other = OneWord("one"), OneWord("other", 48)
    kept.embeds(one)
    assert kept.finds("aa", one)[0] == ("s", apple)
    # None of the other one's vectors is there: its question is compared with nothing.
    assert kept.finds("aa", other) == []
    assert kept.finds("zebra", other)[0] == ("s", zebra), "words are found all the same"
    assert Recaller(kept.archive, other).embed_some() == 6
    assert kept.finds("aa", other)[0] == ("s", apple)
    assert kept.finds("aa", one) == [], "whoever had read the vectors of the first begins anew"
    assert kept.rows("SELECT count(*) FROM vector") == [(6,)]
    assert {len(body) for (body,) in kept.rows("SELECT body FROM vector")} == {96}


def test_vectors_of_another_length_under_the_same_name_do_no_harm_and_are_made_anew(kept: Kept) -> None:
    (apple,) = kept.says("apple pie")
    kept.embeds(OneWord("one"))
    shorter = OneWord("one", 16)
    assert kept.finds("aa", shorter) == [], "they can't be compared"
    assert kept.finds("apple", shorter)[0] == ("s", apple), "words are found all the same"
    (avocado,) = kept.says("avocado")
    assert kept.embeds(shorter) == 6
    assert {entry for _, entry in kept.finds("aa", shorter)[:2]} == {apple, avocado}
    assert {len(body) for (body,) in kept.rows("SELECT body FROM vector")} == {32}
    assert kept.embeds(shorter) == 0


def test_an_embedder_that_comes_back_with_another_length_is_another_one(kept: Kept) -> None:
    kept.journal.create("many", {"workspace": "/w"})
    words = [chr(ord("a") + number % 26) for number in range(CENTRED)]
    entries = [(Kind.USER, {"role": "user", "content": f"{word} of {word}"}, 3) for word in words]
    for at in range(0, CENTRED, 200):
        kept.journal.append("many", entries[at : at + 200])
    kept.embeds(OneWord("one"))
    assert kept.rows("SELECT length(centre) FROM embedder WHERE name = 'one'") == [(4 * 32,)]
    kept.embeds(OneWord("two"))
    shorter = OneWord("one", 16)
    assert kept.embeds(shorter) > CENTRED
    assert kept.rows("SELECT length(centre) FROM embedder WHERE name = 'one'") == [(4 * 16,)]
    assert kept.finds("bb", shorter, session="many")
    assert kept.embeds(shorter) == 0


def test_however_often_something_is_forgotten_the_index_of_words_stays_sound(kept: Kept) -> None:
    kept.says("The wombat lives in Delft.")
    connection = sqlite3.connect(kept.path)
    for number in range(700):
        connection.execute(
            "INSERT INTO passage_words (rowid, words) VALUES (?, 'filler')", (number + (9 << 32),)
        )
        connection.execute("INSERT INTO passage_words (passage_words) VALUES ('optimize')")
    connection.commit()
    block = connection.execute("SELECT block FROM passage_words_data WHERE id = 10").fetchone()[0]
    connection.close()
    (said,) = kept.says("a secret")
    kept.journal.forget("s", [said], blanked)
    (left,) = kept.rows("SELECT block FROM passage_words_data WHERE id = 10")[0]
    assert len(left) < 100, f"{len(block)} before"
    assert kept.finds("wombat") == [("s", 5)]
    assert kept.finds("secret") == []


def test_sessions_of_no_workspace_are_no_project(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "s.db")
    kept.says("zebra one", session="s", workspace="")
    kept.says("zebra two", session="t", workspace="")
    assert kept.finds("zebra", reach="project") == [("s", 1)]
    kept.close()


def test_what_is_shown_of_a_character_that_nobody_sees_is_counted(kept: Kept) -> None:
    for number in range(10):
        kept.says(f"zebra quokka {number}" + "\x00" * 300)
    count = lambda text: len(text.encode())  # noqa: E731
    found = Recaller(kept.archive, None).excerpt(
        "zebra quokka", Scope("s"), limit=1_500, count=count, lang="en", about=False
    )
    assert found is not None
    assert found.tokens == count(found.text) <= 1_500


@pytest.mark.parametrize(
    ("reach", "embedded"),
    [("session", {"mine"}), ("project", {"mine", "beside"}), ("all", {"mine", "beside", "far"})],
)
def test_only_what_is_in_reach_is_given_to_an_embedder(
    tmp_path: Path, reach: Any, embedded: set[str]
) -> None:
    kept = Kept(tmp_path / "s.db")
    kept.says("mine", session="s", workspace="/w")
    kept.says("beside", session="t", workspace="/w")
    kept.says("far", session="u", workspace="/elsewhere")
    one = OneWord("one")
    recaller = Recaller(kept.archive, one)
    while recaller.embed_some(Scope("s", reach)):
        pass
    assert set(one.embedded) == embedded
    kept.close()


@pytest.mark.parametrize("shift", range(0, 800, 160))
def test_an_endpoint_gets_no_part_of_a_secret_wherever_passages_end(kept: Kept, shift: int) -> None:
    key = "sk-proj-" + "".join(f"{at:02d}Qx" for at in range(30))
    lines = [f"{at:03d}" + "Zk9/w" * 12 for at in range(30)]
    pem = "\n".join(("-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"))
    kept.says(f"{'w' * (700 + shift)} {key} tail", json.dumps({"fill": "w" * (700 + shift), "api_key": key}))
    kept.says("word " * (shift // 5) + f"keep this: {pem} thanks", "x" * 1_000 + pem)
    with EmbeddingsEndpoint() as endpoint:
        embedder = EndpointEmbedder(endpoint.base_url, "counting")
        recaller = Recaller(kept.archive, embedder)
        while recaller.embed_some():
            pass
        recaller.search("w" * (990 - shift // 10) + f" {key} " + "what? " * 300, Scope("s"))
        embedder.close()
    sent = "\n".join(text for request in endpoint.requests for text in request.texts)
    assert "keep this: [secret]" in sent or shift > 500
    assert "thanks" in sent
    for secret in (key, *lines):
        parts = {secret[at : at + 12] for at in range(len(secret) - 12)}
        assert not [part for part in parts if part in sent]
    assert kept.rows("SELECT count(*) FROM passage WHERE embedder = 0") == [(0,)]


@pytest.mark.parametrize("lines", [150, 400])
@pytest.mark.parametrize("name", ["RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
@pytest.mark.parametrize("end", [True, False])
def test_an_endpoint_gets_no_part_of_a_private_key_however_long_it_is(
    kept: Kept, name: str, lines: int, end: bool
) -> None:
    key = [f"{at:03d}" + "Zk9/w" * 12 for at in range(lines)]
    block = "\n".join((f"-----BEGIN {name}-----", *key, *([f"-----END {name}-----"] if end else [])))
    # Wherever its name stands, the end of a passage perhaps.
    for shift in range(0, 800, 100):
        kept.says("word " * (shift // 5) + f"keep this: {block}")
    kept.says("a private matter " * 1_000)
    for batch in (1, 7, 10_000):
        texts = kept.archive.without_vector("endpoint", batch, None, True)
        assert "Zk9/w" not in "".join(text for _, text in texts)
    assert [id for id, _ in texts] == [id for id, _ in kept.archive.without_vector("endpoint", 10_000)]
    assert sum(text.count("keep this") for _, text in texts) == 8
    assert sum(text.count("a private matter") for _, text in texts) > 900


def test_an_embedder_in_process_gets_texts_as_they_are(kept: Kept) -> None:
    kept.says("the password is hunter2secret!")
    one = OneWord("one")
    kept.embeds(one)
    assert "the password is hunter2secret!" in one.embedded


def test_no_session_gets_the_numbers_of_one_that_is_gone(kept: Kept) -> None:
    kept.says("alpha", session="last")
    ((id, _), *_) = kept.archive.without_vector("one", 1)
    kept.journal.remove("last", blanked)
    kept.says("beta", session="next")
    kept.archive.keep_vectors("one", {id: numpy.ones(4, numpy.float32)})
    assert kept.rows("SELECT count(*) FROM vector") == [(0,)]
    kept.journal.fork("next", "fork", 1)
    kept.journal.remove("fork", blanked)
    kept.says("gamma", session="again")
    ids = [row[0] for row in kept.rows("SELECT id FROM session ORDER BY id")]
    assert ids == [1, 3, 5]


def test_half_way_from_one_embedder_to_another_each_question_meets_its_own(kept: Kept) -> None:
    kept.says(*(f"{letter} text" for letter in "abcdefghijklmnopqrstuvwxyz"))
    one, other = OneWord("one"), OneWord("other", 48)
    kept.embeds(one)
    assert Recaller(kept.archive, other).embed_some() == AT_ONCE
    assert kept.finds("z", other)[0] == kept.finds("z text")[0]
    assert kept.finds("a?", one)[0][1] == 5
    assert 30 in [entry for _, entry in kept.finds("z?", other)]


# --- what is gone ---------------------------------------------------------------------------------


def gone_by_forgetting(kept: Kept, entry: int) -> None:
    kept.journal.forget("s", [entry], blanked)


def gone_by_undoing(kept: Kept, entry: int) -> None:
    kept.journal.record("s", "turn.undone", {"first": entry, "last": entry})


@pytest.mark.parametrize("gone", [gone_by_forgetting, gone_by_undoing])
@pytest.mark.parametrize("loaded", [False, True], ids=["never read", "read before"])
def test_what_was_forgotten_or_taken_back_is_not_found(
    kept: Kept, gone: Callable[[Kept, int], None], loaded: bool
) -> None:
    (entry,) = kept.says("zebra: the wombat called Gregory")
    kept.says("another one")
    embedder = OneWord("one")
    kept.embeds(embedder)
    if loaded:
        assert kept.finds("zzz", embedder)[0] == ("s", entry)
    gone(kept, entry)
    orphans = "SELECT count(*) FROM vector WHERE passage NOT IN (SELECT id FROM passage)"
    assert kept.rows(orphans) == [(0,)]
    for query in ("Gregory", "zzz"):
        assert ("s", entry) not in kept.finds(query, embedder)
        assert ("s", entry) not in kept.finds(query)
    assert kept.embeds(embedder) == 0
    (again,) = kept.says("the wombat called Gregory again")
    assert kept.holders("Gregory") == {again}
    counted = kept.rows("SELECT passages FROM session WHERE name = 's'")
    assert counted == kept.rows("SELECT count(*) FROM passage")
    connection = sqlite3.connect(kept.path)
    connection.execute("INSERT INTO passage_words (passage_words) VALUES ('integrity-check')")
    connection.close()


def test_a_session_that_was_removed_is_not_found_and_its_forks_are(kept: Kept) -> None:
    kept.says("the wombat called Gregory", session="a")
    kept.journal.fork("a", "b", 1)
    assert kept.finds("Gregory", session="b") == [("b", 1)]
    embedder = OneWord("one")
    kept.embeds(embedder)
    kept.journal.remove("a", blanked)
    assert {session for session, _ in kept.finds("Gregory", reach="all")} == {"b"}
    assert kept.finds("the other", embedder, session="b") == [("b", 1)]
    kept.says("nothing of the kind", session="a")
    assert ("a", 1) not in kept.finds("Gregory", reach="all")[:1]


@pytest.mark.parametrize("at", [4, 5, 6, 8])
def test_a_fork_finds_what_it_holds_even_of_a_turn_that_was_taken_back_later(kept: Kept, at: int) -> None:
    kept.says("aardvark", "bonobo", "caracal", "dingo", session="f")
    kept.journal.record("f", "turn.undone", {"first": 3, "last": 4})
    kept.says("ermine", "ferret", session="f")
    kept.journal.record("f", "turn.undone", {"first": 5, "last": 6})
    kept.says("gnu", "heron", session="f")
    kept.journal.fork("f", "g", at)
    kept.says("ibex", session="g")
    animals = ["aardvark", "bonobo", "caracal", "dingo", "ermine", "ferret", "gnu", "heron", "ibex"]
    found = {animal for animal in animals if kept.holders(animal, session="g")}
    undone = {"caracal", "dingo"} if at > 4 else set()
    undone |= {"ermine", "ferret"} if at > 6 else set()
    assert found == {*animals[:at], "ibex"} - undone
    counted = kept.rows("SELECT passages, words FROM session WHERE name = 'g'")
    assert counted == [(len(found), len(found))]


def test_passages_without_a_word_are_counted_the_same_in_a_fork(kept: Kept) -> None:
    kept.says("...", "one two", "?!", session="f")
    kept.journal.fork("f", "g", 3)
    assert len(set(kept.rows("SELECT passages, words FROM session WHERE name IN ('f', 'g')"))) == 1


# --- what was written before ----------------------------------------------------------------------


def of_schema_two(path: Path, count: int) -> None:
    """A store as it was before there was an archive."""
    connection = sqlite3.connect(path)
    for step in MIGRATIONS[:2]:
        for statement in step:
            connection.execute(statement)
    connection.execute("INSERT INTO session (id, name, created) VALUES (1, 'old', '2025-01-01')")
    for seq in range(1, count + 1):
        body = json.dumps({"role": "user", "content": f"The wombat of room {seq}."})
        connection.execute(
            "INSERT INTO record (session, seq, after, type, body, tokens, time)"
            " VALUES (1, ?, ?, 'user', ?, 5, '2025-01-01T00:00:00')",
            (seq, seq - 1, body),
        )
    body = json.dumps({"first": count, "last": count})
    connection.execute(
        "INSERT INTO record (session, after, type, body, time) VALUES (1, ?, 'turn.undone', ?, '2025-01-01')",
        (count, body),
    )
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()


def test_what_was_written_before_there_was_an_archive_is_found_when_it_is_first_looked_for(
    tmp_path: Path,
) -> None:
    of_schema_two(tmp_path / "s.db", 450)
    kept = Kept(tmp_path / "s.db")
    assert kept.rows("SELECT count(*) FROM passage") == [(0,)], "opening does nothing of the kind"
    kept.journal.append("old", [(Kind.USER, {"role": "user", "content": "The wombat of the attic."}, 5)])
    assert kept.finds("wombat room 123", session="old")[0] == ("old", 123)
    assert kept.finds("attic", session="old")[0] == ("old", 451)
    assert ("old", 450) not in kept.finds("wombat room 450", session="old"), "it was taken back"
    assert kept.rows("SELECT count(*) FROM passage") == [(450,)]
    kept.journal.append("old", [(Kind.USER, {"role": "user", "content": "The wombat of the cellar."}, 5)])
    assert kept.rows("SELECT count(*) FROM passage") == [(451,)], "now it is taken in at once"
    assert kept.finds("cellar", session="old")[0] == ("old", 452)
    kept.close()


def test_who_embeds_takes_in_what_was_written_before_as_well(tmp_path: Path) -> None:
    of_schema_two(tmp_path / "s.db", 10)
    kept = Kept(tmp_path / "s.db")
    assert kept.embeds(OneWord("one")) == 9
    kept.close()


def test_an_archive_of_another_form_is_made_anew(kept: Kept) -> None:
    embedder = OneWord("one")
    kept.embeds(embedder)
    connection = sqlite3.connect(kept.path)
    connection.execute("UPDATE archive SET form = 0")
    connection.execute("UPDATE passage SET words = 'outdated'")
    connection.commit()
    connection.close()
    again = Kept(kept.path)
    assert again.finds("parser")[0] == ("s", 1)
    assert again.rows("SELECT count(*) FROM vector") == [(0,)]
    assert again.embeds(embedder) == 4
    assert again.rows("SELECT passages, words FROM session") == again.rows(
        "SELECT count(*), sum(length(words) - length(replace(words, ' ', '')) + 1) FROM passage"
    )
    assert kept.finds("aaa", embedder) == again.finds("aaa", embedder), "who had it open sees the same"
    again.close()


def test_a_store_that_can_only_be_read_is_searched_as_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    kept = Kept(folder / "s.db")
    (entry,) = kept.says("the wombat called Gregory")
    kept.embeds(OneWord("one"))
    kept.close()
    for name in ("s.db-wal", "s.db-shm"):
        (folder / name).unlink(missing_ok=True)
    connection = sqlite3.connect(f"file:{folder / 's.db'}?mode=ro", uri=True)
    connection.close()
    archive = SqliteArchive(folder / "s.db")
    archive._database.connection.execute("PRAGMA query_only = ON")
    try:
        found = Recaller(archive, OneWord("one")).search("Gregory", Scope("s"))
        assert found[0].passage.entry == entry
    finally:
        archive.close()


def test_a_vector_never_comes_to_a_passage_that_was_said_after_its_own_was_gone(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "own.db")
    (entry,) = kept.says("old words")
    ((id, _),) = kept.archive.without_vector("e", 9)
    gone_by_undoing(kept, entry)
    kept.says("new words")
    kept.archive.keep_vectors("e", {id: numpy.ones(8, numpy.float32)})
    ((other, text),) = kept.archive.without_vector("e", 9)
    assert text == "new words"
    assert other != id
    kept.close()


@pytest.mark.parametrize("without", [(), (1,), (2, 3), (3,), (1, 2, 3)])
def test_what_is_said_after_something_is_gone_is_found_beside_what_stayed(
    tmp_path: Path, without: tuple[int, ...]
) -> None:
    kept = Kept(tmp_path / "own.db")
    kept.says("wombat one", "wombat two", "wombat three")
    kept.journal.forget("s", without, blanked)
    kept.says("wombat four")
    assert kept.holders("wombat") == {1, 2, 3, 4} - {*without}
    kept.close()
