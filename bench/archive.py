"""How long does it take to keep an entry and to find one, in a store of up to a million?

    python bench/archive.py [--most N] [--without-peer]

For `SqliteJournal` and `SqliteArchive`, at 10k, 100k and 1M entries: one more entry with its words, written
durably, without waiting for the disk, and while another thread searches; a hybrid query (words and meaning,
then ranked; the query's embedding not counted) over everything, and over one session; opening and the first
query, with the files out of the system's cache; memory, size on disk; and how many of the truly nearest are
found by meaning. In the same run LanceDB, where it is importable, as its documentation does a hybrid query:
a full-text and a vector index as it makes them, refined, and joined by reciprocal rank. Each has a process of
its own.

Texts are generated: chat, calls and results of tools, in English and Chinese, with words as frequent as in
real texts. Vectors are drawn, since embedding a million texts takes hours: 512 numbers, with mean, spectrum
and neighbourhoods like the sentence encoder's on real conversations. A whole run (an hour, 6 GB in TMPDIR)
also writes `bench/results/archive.md` and `archive.svg`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from perdure.chat.messages import Kind
from perdure.memory.passages import Query
from perdure.memory.ranking import ranked
from perdure.memory.words import STOP_WORDS, words_of
from perdure.store.archive import Scope
from perdure.store.journal import NewEntry
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive
from plot import Series, chart

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000, 1_000_000)
#: Entries of a session.
SESSION = 2_000
EMBEDDER = "drawn"
DIMENSIONS = 512
#: Queries of each kind, and entries that are written one by one.
QUERIES, WRITES = 200, 200
#: Each query is asked so often, and its median counts, so that what else runs here weighs less.
ROUNDS = 3
#: LanceDB compares so many times as many vectors once more exactly; without, it finds half of the nearest.
REFINED = 10
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


# --- queries ------------------------------------------------------------------------------------

FRAMES = (
    "What did we say about {}?",
    "where was {} changed",
    "Please go on with {} as we agreed.",
    "{}",
    "之前关于{}是怎么说的？",
)


def asked_of(path: Path, count: int) -> list[Query]:
    """Questions about passages drawn at random: some of the words in it, in a frame that many ask in, and a
    vector near to its own."""
    random, drawn = numpy.random.default_rng(3), Drawn()
    with closing(sqlite3.connect(path)) as connection:
        ids = _passages(connection)
        made: list[Query] = []
        for place in random.integers(0, len(ids), count):
            (text,) = connection.execute("SELECT text FROM passage WHERE id = ?", (ids[place],)).fetchone()
            asked = _asked(text, random)
            near = drawn.near(drawn.chunk(place // Drawn.CHUNK)[place % Drawn.CHUNK], int(place))
            made.append(Query(asked, tuple(words_of(asked)), near, EMBEDDER))
    return made


def _passages(connection: sqlite3.Connection) -> list[int]:
    """Ids of the passages that have a vector, in the order of the vectors."""
    query = (
        "SELECT passage FROM vector JOIN embedder ON embedder.id = embedder WHERE name = ? ORDER BY vector.id"
    )
    return [row[0] for row in connection.execute(query, (EMBEDDER,))]


def _asked(text: str, random: numpy.random.Generator) -> str:
    frame = FRAMES[int(random.integers(len(FRAMES)))]
    if " " not in text.strip():
        at = int(random.integers(max(len(text) - 8, 1)))
        return frame.format(text[at : at + int(random.integers(4, 12))])
    words = text.split()
    chosen = random.integers(0, len(words), int(random.integers(2, 8)))
    return frame.format(" ".join(words[at] for at in sorted(chosen)))


def truly_nearest(queries: Sequence[Query], passages: int) -> NDArray[numpy.int64]:
    """Places of the 100 nearest vectors of each query, nearest first."""
    drawn, asked = Drawn(), numpy.array([query.vector for query in queries]).T
    places = numpy.zeros((0, len(queries)), numpy.int64)
    cosines = numpy.zeros((0, len(queries)), numpy.float32)
    for number in range(-(-passages // Drawn.CHUNK)):
        rows = drawn.chunk(number)[: passages - number * Drawn.CHUNK]
        here = numpy.arange(len(rows)) + number * Drawn.CHUNK
        cosines = numpy.concatenate([cosines, rows @ asked])
        places = numpy.concatenate([places, numpy.repeat(here[:, None], len(queries), axis=1)])
        best = numpy.argsort(-cosines, axis=0)[:100]
        cosines = numpy.take_along_axis(cosines, best, axis=0)
        places = numpy.take_along_axis(places, best, axis=0)
    return places.T


# --- stores -------------------------------------------------------------------------------------

#: What is measured, by name.
Figures = dict[str, float]


class Ours:
    name = "perdure"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"

    def grow(self, texts: Texts, first: int, size: int) -> Figures:
        began = time.perf_counter()
        journal = SqliteJournal(self.path)
        journal._database.connection.execute("PRAGMA synchronous = OFF")
        for number in range(first // SESSION, size // SESSION):
            journal.create(f"s{number}", {"workspace": "w"})
            entries = texts.session(SESSION)
            for at in range(0, SESSION, 200):
                journal.append(f"s{number}", entries[at : at + 200])
        journal.close()
        written = time.perf_counter()
        self._embed()
        embedded = time.perf_counter()
        return {"written, s": written - began, "then indexed, s": embedded - written}

    def _embed(self) -> None:
        archive = SqliteArchive(self.path)
        cursor = archive._database.connection.cursor()
        cursor.execute("PRAGMA synchronous = OFF")
        done = len(_passages(archive._database.connection))
        waiting = cursor.execute(
            "SELECT passage.id FROM passage JOIN session ON session.id = passage.id >> 32"
            " WHERE embedder = 0 AND name LIKE 's%' ORDER BY passage.id"
        )
        ids, rows = [row[0] for row in waiting], vectors_from(done)
        for at in range(0, len(ids), 500):
            archive.keep_vectors(EMBEDDER, dict(zip(ids[at : at + 500], rows, strict=False)))
        archive.close()

    def measured(self, truth: NDArray[numpy.int64]) -> Figures:
        queries = asked_of(self.path, QUERIES)
        before = _memory()
        began = time.perf_counter()
        archive = SqliteArchive(self.path)

        def search(query: Query, reach: Any = "all") -> None:
            ranked(query, archive.pool(query, Scope("s1", reach)))

        search(queries[0])
        found: Figures = {"open and first query, ms": (time.perf_counter() - began) * 1e3}
        found |= _timed("query, all", [partial(search, query) for query in queries[1:]], ROUNDS)
        found |= _timed("query, session", [partial(search, query, "session") for query in queries], ROUNDS)
        found["memory, MB"] = _memory() - before
        found |= self._recall(archive, queries, truth) | self._writes(archive, queries)
        waiting = archive.without_vector(EMBEDDER, 16)
        found |= _timed(
            "16 texts to embed", (lambda: archive.without_vector(EMBEDDER, 16) for _ in range(20))
        )
        vector = queries[0].vector
        kept = [{id: vector} for id, _ in waiting if vector is not None]
        found |= _timed("keep a vector", (lambda one=one: archive.keep_vectors("other", one) for one in kept))
        archive.close()
        return found

    def _recall(self, archive: SqliteArchive, queries: Sequence[Query], truth: NDArray[Any]) -> Figures:
        with closing(sqlite3.connect(self.path)) as connection:
            ids = numpy.array(_passages(connection))
        cursor, vectors = archive._database.connection.cursor(), archive._all_vectors
        spans = ((0, (1 << 63) - 1),)
        answers = []
        for query in queries[: len(truth)]:
            assert query.vector is not None
            near = vectors.nearest(cursor, query.vector, spans, lambda ids: numpy.ones(len(ids), bool))
            answers.append(near.ids[numpy.argsort(-near.cosines)].tolist())
        return _shares(answers, ids[truth].tolist())

    def _writes(self, archive: SqliteArchive, queries: Sequence[Query]) -> Figures:
        journal = SqliteJournal(self.path)
        if not journal.exists("written"):
            journal.create("written", {"workspace": "w"})
        entries = iter(Texts(seed=23).session(SESSION))

        def writes(count: int) -> Iterable[Callable[[], object]]:
            return (lambda: journal.append("written", [next(entries)]) for _ in range(count))

        found = _timed("insert, durable", writes(WRITES))
        with searching(archive, queries):
            found |= _timed("insert, while others search", writes(WRITES))
        journal._database.connection.execute("PRAGMA synchronous = OFF")
        found |= _timed("insert, without fsync", writes(WRITES))
        found |= _timed("list of sessions", (journal.sessions for _ in range(20)))
        journal.close()
        return found


class searching:
    """Another thread that searches, one query after the other."""

    def __init__(self, archive: SqliteArchive, queries: Sequence[Query]) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._search, args=(archive, queries))

    def _search(self, archive: SqliteArchive, queries: Sequence[Query]) -> None:
        while not self._ended.is_set():
            for query in queries:
                if not self._ended.is_set():
                    ranked(query, archive.pool(query, Scope("s1", "all")))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class Lance:
    """The same passages and vectors in a table of LanceDB."""

    name = "LanceDB"

    def __init__(self, folder: Path) -> None:
        self._ours = folder / "store.db"
        self.path = folder / "lance"

    def grow(self, texts: Texts, first: int, size: int) -> Figures:
        import lancedb
        import pyarrow
        from lancedb.index import FTS, IvfPq

        began = time.perf_counter()
        names = {"id": pyarrow.int64(), "session": pyarrow.int64(), "text": pyarrow.string()}
        vector = pyarrow.list_(pyarrow.float32(), DIMENSIONS)
        schema = pyarrow.schema([*names.items(), ("vector", vector)])
        table = lancedb.connect(self.path).create_table("entries", schema=schema, exist_ok=True)
        with closing(sqlite3.connect(self._ours)) as connection:
            rows = connection.execute(
                "SELECT passage, passage >> 32, text FROM vector JOIN passage ON passage.id = passage"
                " JOIN embedder ON embedder.id = vector.embedder WHERE embedder.name = ?"
                " ORDER BY vector.id LIMIT -1 OFFSET ?",
                (EMBEDDER, done := table.count_rows()),
            )
            vectors = vectors_from(done)
            while chunk := rows.fetchmany(10_000):
                columns = [pyarrow.array(column) for column in zip(*chunk, strict=True)]
                flat = numpy.concatenate([next(vectors) for _ in chunk])
                filled = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(flat), DIMENSIONS)
                table.add(pyarrow.table([*columns, filled], schema=schema))
        written = time.perf_counter()
        table.create_index("text", config=FTS(), replace=True)
        table.create_index("vector", config=IvfPq(distance_type="cosine"), replace=True)
        table.optimize()
        indexed = time.perf_counter()
        return {"written, s": written - began, "then indexed, s": indexed - written}

    def measured(self, truth: NDArray[numpy.int64]) -> Figures:
        import lancedb
        from lancedb.rerankers import RRFReranker

        queries = asked_of(self._ours, QUERIES)
        before = _memory()
        began = time.perf_counter()
        table = lancedb.connect(self.path).open_table("entries")
        reranker = RRFReranker()

        def search(query: Query, where: str = "") -> None:
            asked = table.search(query_type="hybrid", vector_column_name="vector", fts_columns="text")
            asked = asked.vector(query.vector).text(query.text).rerank(reranker).refine_factor(REFINED)
            asked = asked.where(where, prefilter=True) if where else asked
            asked.select(["id", "text"]).limit(300).to_list()

        search(queries[0])
        found: Figures = {"open and first query, ms": (time.perf_counter() - began) * 1e3}
        found |= _timed("query, all", [partial(search, query) for query in queries[1:]], ROUNDS)
        one = "session = 2"
        found |= _timed("query, session", [partial(search, query, one) for query in queries], ROUNDS)
        found["memory, MB"] = _memory() - before
        answers = []
        for query in queries[: len(truth)]:
            near = table.search(query.vector, vector_column_name="vector").distance_type("cosine")
            near = near.refine_factor(REFINED).select(["id"]).limit(100)
            answers.append([row["id"] for row in near.to_list()])
        with closing(sqlite3.connect(self._ours)) as connection:
            ids = numpy.array(_passages(connection))
        found |= _shares(answers, ids[truth].tolist())
        rows = [
            {"id": -at, "session": -1, "text": query.text, "vector": query.vector}
            for at, query in enumerate(queries[: WRITES // 4])
        ]
        found |= _timed("insert, durable", (lambda row=row: table.add([row]) for row in rows))
        table.delete("session = -1")
        return found


def vectors_from(first: int) -> Iterator[NDArray[numpy.float32]]:
    drawn = Drawn()
    while True:
        chunk = drawn.chunk(first // Drawn.CHUNK)
        for at in range(first % Drawn.CHUNK, Drawn.CHUNK):
            yield chunk[at]
            first += 1


# --- measuring ----------------------------------------------------------------------------------


def _timed(name: str, calls: Iterable[Callable[[], object]], rounds: int = 1) -> Figures:
    """p50 and p95 of the calls, each the median of so many rounds, in milliseconds; and of the processor's
    time, of all threads."""
    walls, processors = [], []
    for call in [*calls] * rounds:
        began, used = time.perf_counter(), time.process_time()
        call()
        walls.append((time.perf_counter() - began) * 1e3)
        processors.append((time.process_time() - used) * 1e3)
    times = {"": walls, "processor, ": processors}
    return {
        f"{name}: {of}p{percent}": float(
            numpy.percentile(numpy.median(numpy.reshape(taken, (rounds, -1)), axis=0), percent)
        )
        for of, taken in times.items()
        for percent in (50, 95)
    }


def _shares(answers: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> Figures:
    """Of the truly nearest 10 and 100, how many are among the answer's first 10 and 100."""
    return {
        f"nearest {count} found, %": 100
        * float(
            numpy.mean(
                [len({*a[:count]} & {*t[:count]}) / count for a, t in zip(answers, truth, strict=True)]
            )
        )
        for count in (10, 100)
    }


def _memory() -> float:
    """Of this process, in MB."""
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _files(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]


def _out_of_cache(path: Path) -> None:
    """Let the system forget what it has read of these files."""
    for each in _files(path) if hasattr(os, "posix_fadvise") else ():
        with each.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


STORES = {store.name: store for store in (Ours, Lance)}


def compared(folder: Path, sizes: Sequence[int], peer: bool) -> dict[tuple[str, int], Figures]:
    texts, done = Texts(), 0
    found: dict[tuple[str, int], Figures] = {}
    for size in sizes:
        built = {name: STORES[name](folder).grow(texts, done, size) for name in [*STORES][: 1 + peer]}
        done = size
        queries = asked_of(folder / "store.db", QUERIES)[:CHECKED]
        with closing(sqlite3.connect(folder / "store.db")) as connection:
            passages = len(_passages(connection))
        truth = truly_nearest(queries, passages)
        numpy.save(folder / "truth.npy", truth)
        for name, figures in built.items():
            path = STORES[name](folder).path
            disk = sum(each.stat().st_size for each in _files(path)) / 1e6
            _out_of_cache(path)
            command = [sys.executable, __file__, "--measure", name, str(folder)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            measured = json.loads(output.splitlines()[-1])
            found[name, size] = {"passages": passages, **figures, "disk, MB": disk, **measured}
            print(f"{name}, {size:,}:", json.dumps(found[name, size]), flush=True)
    return found


def table(found: Mapping[tuple[str, int], Figures]) -> str:
    rows = list(dict.fromkeys(name for figures in found.values() for name in figures))
    lines = [
        "| ms, where nothing else is said | " + " | ".join(f"{name}, {_short(size)}" for name, size in found)
    ]
    lines = [lines[0] + " |", "|---|" + "--:|" * len(found)]
    for row in rows:
        cells = (
            f"{figures[row]:,.{_digits(figures[row])}f}" if row in figures else ""
            for figures in found.values()
        )
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _digits(value: float) -> int:
    return 0 if value >= 100 or value == int(value) else 1 if value >= 10 else 2


def _short(size: int) -> str:
    return f"{size // 1_000_000}M" if size >= 1_000_000 else f"{size // 1_000}k"


def plotted(found: Mapping[tuple[str, int], Figures]) -> str:
    rows = ("query, all: p95", "query, all: p50", "query, session: p95", "insert, durable: p50")
    series = [
        Series(
            f"{name}: {row}",
            [(size, figures[row]) for (whose, size), figures in found.items() if whose == name],
        )
        for name in dict.fromkeys(name for name, _ in found)
        for row in rows
    ]
    return chart(series, title="Keeping an entry, and finding one", across="entries in the store", up="ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--most", type=int, default=SIZES[-1], help="entries; with less than 1M nothing is written"
    )
    parser.add_argument("--without-peer", action="store_true", help="nothing is written")
    parser.add_argument("--measure", nargs=2, metavar=("STORE", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, folder = arguments.measure
        print(json.dumps(STORES[name](Path(folder)).measured(numpy.load(Path(folder) / "truth.npy"))))
        return
    peer = not arguments.without_peer and find_spec("lancedb") is not None
    if not peer:
        print("LanceDB is left out.")
    with tempfile.TemporaryDirectory() as folder:
        found = compared(Path(folder), [size for size in SIZES if size <= arguments.most], peer)
    report = table(found)
    print(report)
    if peer and arguments.most >= SIZES[-1]:
        when = f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores"
        head = f"# Keeping an entry, and finding one\n\n`python bench/archive.py`, {when}.\n\n"
        (RESULTS / "archive.md").write_text(head + report + "\n", encoding="utf-8")
        (RESULTS / "archive.svg").write_text(plotted(found), encoding="utf-8")


if __name__ == "__main__":
    main()
