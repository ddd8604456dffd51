"""How long does it take to keep an entry and to find one, in a store of up to a million?

    python bench/archive.py [--most N] [--without-peer] [--keep FOLDER]

For `SqliteJournal` and `SqliteArchive`, at 10k, 100k and 1M entries: one more entry with its words, written
durably, without waiting for the disk, and while others search; a hybrid query (words and meaning, then
ranked) over everything and over one session of it, the query's embedding not counted; the first query after
opening, with the file out of the system's cache; memory, size on disk; and how many of the truly nearest are
found by meaning. In the same run LanceDB, as its documentation does a hybrid query (full-text index, vector
index, reciprocal-rank fusion), where it is importable. Each is measured in a process of its own.

Texts are generated: chat, calls and results of tools, in English and Chinese, with words as frequent as in
real texts. Vectors are drawn, since embedding a million texts takes hours: 512 numbers, with the mean, the
spectrum and the neighbourhoods of the sentence encoder's on real conversations. Table and plot go to the
terminal and to `bench/results/archive.md` and `archive.svg`, which only a whole run (1M, 5 GB of disk in
TMPDIR, an hour) writes.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from perdure.chat.messages import Kind
from perdure.memory.passages import Query
from perdure.memory.words import STOP_WORDS, words_of
from perdure.store.journal import NewEntry
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000, 1_000_000)
#: Entries of a session.
SESSION = 2_000
EMBEDDER = "drawn"
DIMENSIONS = 512
#: Queries of each kind, and entries that are written one by one.
QUERIES, WRITES = 200, 200
#: Queries whose truly nearest are known.
CHECKED = 50


# --- texts --------------------------------------------------------------------------------------


class Texts:
    """Sessions of an agent: words by Zipf's law, and in each session some of its own."""

    def __init__(self, seed: int = 7) -> None:
        self._random = numpy.random.default_rng(seed)
        made = self._invented(60_000)
        self._words = numpy.array([*sorted(word for word in STOP_WORDS if word.isascii()), *made])
        self._often = _zipf(len(self._words), 2.7)
        self._characters = numpy.array([chr(0x4E00 + at) for at in self._random.permutation(3_500)])
        self._seldom = _zipf(len(self._characters), 8.0)

    def session(self, count: int) -> list[NewEntry]:
        own = self._random.integers(100, len(self._words), 400)
        files = [
            f"src/{self._words[a]}/{self._words[b]}_{self._words[c]}.py"
            for a, b, c in own[:90].reshape(-1, 3)
        ]
        entries: list[NewEntry] = []
        chinese = self._random.random() < 0.25
        while len(entries) < count:
            ask = self._prose(own, self._random.integers(6, 40), chinese)
            entries.append((Kind.USER, {"role": "user", "content": ask}, 20))
            for _ in range(int(self._random.integers(0, 5))):
                entries += self._round(own, files, len(entries))
            answer = self._prose(own, self._random.integers(15, 110), chinese)
            entries.append((Kind.ASSISTANT, {"role": "assistant", "content": answer}, 60))
        return entries[:count]

    def _round(self, own: NDArray[Any], files: Sequence[str], number: int) -> list[NewEntry]:
        path, line = files[int(self._random.integers(len(files)))], int(self._random.integers(1, 2_000))
        arguments = json.dumps({"path": path, "first": line, "last": line + 40})
        call = {"id": f"call_{number}", "type": "function"}
        call |= {"function": {"name": "read_file", "arguments": arguments}}
        lines = [
            f"{line + at}: {'_'.join(self._some(own, 2))} ="
            f" {self._words[own[at]]}({int(self._random.integers(99_999))})"
            f"  # {' '.join(self._some(own, 5))}"
            for at in range(int(self._random.integers(1, 16)))
        ]
        result = {"role": "tool", "tool_call_id": call["id"], "content": "\n".join([path, *lines])}
        return [
            (Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]}, 20),
            (Kind.TOOL_RESULT, result, 150),
        ]

    def _prose(self, own: NDArray[Any], length: int, chinese: bool) -> str:
        if chinese:
            said = self._characters[numpy.searchsorted(self._seldom, self._random.random(int(length) * 2))]
            return "".join(f"{each}，" if at % 9 == 8 else each for at, each in enumerate(said)) + "。"
        words = self._some(own, int(length))
        return " ".join(f"{each}." if at % 12 == 11 else each for at, each in enumerate(words)) + "."

    def _some(self, own: NDArray[Any], count: int) -> list[str]:
        which = numpy.searchsorted(self._often, self._random.random(count))
        mine = self._random.random(count) < 0.25
        which[mine] = own[self._random.integers(0, len(own), int(mine.sum()))]
        return [str(word) for word in self._words[which]]

    def _invented(self, count: int) -> list[str]:
        sounds = [
            a + b
            for a in [
                "b",
                "c",
                "d",
                "f",
                "g",
                "h",
                "k",
                "l",
                "m",
                "n",
                "p",
                "r",
                "s",
                "t",
                "v",
                "w",
                "st",
                "tr",
                "ch",
            ]
            for b in ["a", "e", "i", "o", "u", "ea"]
        ]
        lengths = self._random.integers(2, 5, count * 2)
        words = ("".join(self._random.choice(sounds, length)) for length in lengths)
        return list(dict.fromkeys(words))[:count]


def _zipf(count: int, offset: float) -> NDArray[numpy.float64]:
    """Up to where each rank reaches, of all draws from 0 to 1."""
    often = 1 / (numpy.arange(1, count + 1) + offset)
    reached: NDArray[numpy.float64] = (often / often.sum()).cumsum()
    reached[-1] = 1.0
    return reached


# --- vectors ------------------------------------------------------------------------------------


class Drawn:
    """Unit vectors like those of the sentence encoder: on real conversations (LoCoMo, generated sessions) its
    mean has a length of 0.43 to 0.59; 1, 10, 50, 100 and 200 axes hold 4 to 8, 27 to 37, 60 to 70, 77 to 84
    and 92 to 95% of the variance; the nearest of 3,000 has a cosine of 0.62 to 0.81."""

    CHUNK, CLUSTERS = 10_000, 20_000

    def __init__(self, seed: int = 11) -> None:
        self._seed = seed
        random = numpy.random.default_rng(seed)
        axes, _ = numpy.linalg.qr(random.standard_normal((DIMENSIONS, DIMENSIONS)))
        rank = numpy.arange(1, DIMENSIONS + 1)
        spectrum = (rank + 3.0) ** -0.75 * numpy.exp(-rank / 170)
        self._turn = (numpy.sqrt(spectrum / spectrum.sum())[:, None] * axes).astype(numpy.float32)
        mean = random.standard_normal(DIMENSIONS)
        self._mean = (0.58 * mean / numpy.linalg.norm(mean)).astype(numpy.float32)

    @cached_property
    def _centres(self) -> NDArray[numpy.float32]:
        random = numpy.random.default_rng(self._seed + 1)
        return random.standard_normal((self.CLUSTERS, DIMENSIONS), numpy.float32) @ self._turn

    def chunk(self, number: int) -> NDArray[numpy.float32]:
        random = numpy.random.default_rng([self._seed, number])
        mine = random.standard_normal((self.CHUNK, DIMENSIONS), numpy.float32) @ self._turn
        which = random.integers(0, self.CLUSTERS, self.CHUNK)
        # Some stand close to their cluster, some far off.
        near = random.uniform(0.35, 0.85, (self.CHUNK, 1)).astype(numpy.float32)
        vectors = self._mean + numpy.sqrt(near) * self._centres[which] + numpy.sqrt(1 - near) * mine
        return _unit(vectors)

    def near(self, vector: NDArray[numpy.float32], seed: int) -> NDArray[numpy.float32]:
        """A question about it: half of the distance to any other one away."""
        mine = numpy.random.default_rng([self._seed, 1, seed]).standard_normal(DIMENSIONS, numpy.float32)
        return _unit((0.65 * vector + 0.45 * (mine @ self._turn) + 0.35 * self._mean)[None])[0]


def _unit(rows: NDArray[numpy.float32]) -> NDArray[numpy.float32]:
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


# --- ours ---------------------------------------------------------------------------------------


class Ours:
    """The store in a folder, which grows from one size to the next."""

    name = "perdure"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self._texts = Texts()
        self._entries = 0
        self._vectors = 0

    def grow(self, size: int) -> dict[str, float]:
        """Up to so many entries; seconds for the words and for the vectors."""
        began = time.perf_counter()
        journal = SqliteJournal(self.path)
        journal._database.connection.execute("PRAGMA synchronous = OFF")
        while self._entries < size:
            name = f"s{self._entries // SESSION}"
            journal.create(name, {"workspace": "w"})
            entries = self._texts.session(SESSION)
            for at in range(0, SESSION, 200):
                journal.append(name, entries[at : at + 200])
            self._entries += SESSION
        journal.close()
        written = time.perf_counter()
        self._embed()
        return {"build, words (s)": written - began, "build, vectors (s)": time.perf_counter() - written}

    def _embed(self) -> None:
        drawn, archive = Drawn(), SqliteArchive(self.path)
        cursor = archive._database.connection.cursor()
        cursor.execute("PRAGMA synchronous = OFF")
        ids = [row[0] for row in cursor.execute("SELECT id FROM passage WHERE embedder = 0 ORDER BY id")]
        rows = _rows(drawn, self._vectors)
        for at in range(0, len(ids), 500):
            archive.keep_vectors(EMBEDDER, dict(zip(ids[at : at + 500], rows, strict=False)))
        self._vectors += len(ids)
        archive.close()


def _rows(drawn: Drawn, first: int) -> Iterator[NDArray[numpy.float32]]:
    while True:
        chunk = drawn.chunk(first // Drawn.CHUNK)
        for at in range(first % Drawn.CHUNK, Drawn.CHUNK):
            yield chunk[at]
            first += 1


# --- queries ------------------------------------------------------------------------------------


def queries(path: Path, count: int, sessions: int, seed: int = 3) -> list[tuple[Query, str, int]]:
    """Questions about passages drawn at random, with the session and the place of each: some of the words in
    it, in a frame that many ask in, and a vector near to its own."""
    random, drawn = numpy.random.default_rng(seed), Drawn()
    connection = sqlite3.connect(path)
    offsets = [0]
    for (passages,) in connection.execute("SELECT passages FROM session ORDER BY id"):
        offsets.append(offsets[-1] + passages)
    made: list[tuple[Query, str, int]] = []
    while len(made) < count:
        session = int(random.integers(sessions))
        number = int(random.integers(offsets[session + 1] - offsets[session]))
        row = connection.execute(
            "SELECT text FROM passage WHERE id = ?", ((session + 1 << 32) + number + 1,)
        ).fetchone()
        place = offsets[session] + number
        text = _asked(row[0], random)
        vector = drawn.near(drawn.chunk(place // Drawn.CHUNK)[place % Drawn.CHUNK], place)
        made.append((Query(text, tuple(words_of(text)), vector, EMBEDDER), f"s{session}", place))
    connection.close()
    return made


FRAMES = (
    "What did we say about {}?",
    "where was {} changed",
    "Please go on with {} as we agreed.",
    "{}",
    "之前关于{}是怎么说的？",
)


def _asked(text: str, random: numpy.random.Generator) -> str:
    frame = FRAMES[int(random.integers(len(FRAMES)))]
    if " " not in text.strip():
        at = int(random.integers(max(len(text) - 8, 1)))
        return frame.format(text[at : at + int(random.integers(4, 12))])
    words = text.split()
    chosen = random.integers(0, len(words), int(random.integers(2, 8)))
    return frame.format(" ".join(words[at] for at in sorted(chosen)))
