"""Generated sessions of an agent with tools: what `upkeep.py` and `prefix.py` are measured on.

    python bench/sessions.py [--turns N] [--seed N] [--size SHARE]     says what such a session is made of

A turn is a person's request, no, some or many rounds of tools (sometimes two or three calls at once), and
an answer. What tools show is real text: the source of Python's standard library as it is read, searched,
listed and tested; so texts differ between versions of Python, but not how many messages come and of what
sort. 400 turns make about 1,400 model calls of 640 tokens more each, the size of the sessions on which the
published algorithm was first measured; nothing here was fitted to how our own memory does.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.chat.messages import Message

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
#: Files that an agent would read: of these sizes, in bytes, and at most so many.
SMALLEST, LARGEST, FILES = 2_000, 120_000, 160

#: Rounds of tools in a turn, at least and at most, and how often of a hundred.
ROUNDS = (((0, 0), 30), ((1, 2), 34), ((3, 6), 28), ((7, 11), 8))
#: Calls in one round, and how often of a hundred.
AT_ONCE = ((1, 84), (2, 12), (3, 4))

ASKS = (
    "Why does {name} in {path} behave differently when the list is empty? Please look into it.",
    "In {path}, line {line}: is this still what we want? I'd rather have it raise a clear error.",
    "Find everything that calls {name} and tell me whether renaming it is safe.",
    "Add a test for {name} that fails before the change and passes after it.",
    "The build of last night failed after revision {revision}. What happened there, and who must act?",
    "Make {name} faster without changing what it gives back; it is called about {line} times a second.",
    "What is the difference between {name} and what {path} does around line {line}?",
    "Go on with the next step, but leave {path} alone until ticket {revision} is decided.",
    "Thanks. Now do the same for {path}, and keep the limit of {line} entries.",
    "Explain {name} to somebody who has never seen {path}, in a few sentences.",
    "请检查 {path} 第 {line} 行附近的 {name}，看看为什么空输入会出错，并说明如何修改。",
)
REASONS = (
    "The nightly job has reported it three times this week, always a little after midnight.",
    "A customer ran into it with a file of {line} megabytes and can't work around it.",
    "Don't change the public interface; two other teams rely on it.",
    "We agreed to keep support for the old format until the end of the quarter.",
    "If it takes more than an hour, tell me first what you would do.",
    "The log says nothing useful, only revision {revision} and an exit code.",
    "I believe that {name} is involved, but I haven't looked closely.",
    "Keep it small: a reviewer has to read it today.",
)
THOUGHTS = (
    "Let me look at {path} first.",
    "That doesn't explain it yet; {name} is called from elsewhere too.",
    "I'll check how {name} is used before changing anything.",
    "The test fails for another reason than I thought. Looking at line {line}.",
)
FINDINGS = (
    "The cause is in {path}: {name} is called before its argument has been checked (line {line}).",
    "I changed {path} so that {name} returns early; nothing else calls it with an empty list.",
    "All {line} tests pass, the new one included; it failed before the change.",
    "Two callers of {name} rely on the old behaviour, both in {path}; they stay as they are.",
    "What remains open: whether revision {revision} should be reverted. I would leave it.",
    "I left the public interface alone and noted the decision in the ticket {revision}.",
    "It now takes about {line} ms instead of three times as much, measured over five runs.",
    "`{name}` has no documentation; I added one sentence that says what it gives back and when.",
    "One more thing: {path} has a second copy of this check, which could go later.",
)


@functools.cache
def library() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Files by their path, as lines."""
    paths = [
        path
        for path in sorted(LIBRARY.glob("*.py")) + sorted(LIBRARY.glob("[a-z]*/*.py"))
        if "site-packages" not in path.parts and SMALLEST <= path.stat().st_size <= LARGEST
    ]
    chosen = paths[:: max(len(paths) // FILES, 1)]
    return tuple((path.relative_to(LIBRARY).as_posix(), _lines(path)) for path in chosen)


def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text("utf-8", errors="replace").splitlines())


@functools.cache
def names() -> tuple[str, ...]:
    """What is defined in the files."""
    words = (line.split() for _, lines in library() for line in lines)
    defined = (word[1].partition("(")[0].rstrip(":") for word in words if len(word) > 1 and word[0] == "def")
    return tuple(sorted({name for name in defined if len(name) > 5}))


class Session:
    """One session, drawn by a seed. ``size``: how long excerpts and results are, beside the ordinary."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        self._chance = random.Random(seed)
        self._size = size
        self._calls = 0
        #: Each way of using a tool, and how often of a hundred.
        self._uses: tuple[tuple[Callable[[], tuple[str, dict[str, Any], str]], int], ...] = (
            (self._read, 38),
            (self._search, 18),
            (self._test, 14),
            (self._edit, 14),
            (self._list, 6),
            (self._query, 10),
        )

    def turn(self) -> Iterator[Message]:
        yield {"role": "user", "content": self._request()}
        for _ in range(self._rounds()):
            yield from self._round()
        yield {"role": "assistant", "content": self._answer()}

    def _rounds(self) -> int:
        return self._chance.randint(*self._one_of(ROUNDS))

    def _round(self) -> Iterator[Message]:
        used = [self._one_of(self._uses)() for _ in range(self._one_of(AT_ONCE))]
        ids = [f"call_{self._calls + number:05}" for number in range(len(used))]
        self._calls += len(used)
        calls = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, (name, arguments, _) in zip(ids, used, strict=True)
        ]
        thought = self._some(THOUGHTS, 1)[0] if self._chance.random() < 0.4 else None
        yield {"role": "assistant", "content": thought, "tool_calls": calls}
        for id, (_, _, shown) in zip(ids, used, strict=True):
            yield {"role": "tool", "tool_call_id": id, "content": shown}

    # --- what is said

    def _request(self) -> str:
        parts = [*self._some(ASKS, 1), *self._some(REASONS, self._chance.choice((0, 1, 2, 3, 4)))]
        if self._chance.random() < 0.25:
            parts.append("```\n" + "\n".join(self._excerpt(self._length(10, 30, 50))[1]) + "\n```")
        return "\n".join(parts)

    def _answer(self) -> str:
        lines = self._some(FINDINGS, self._chance.randint(1, 9))
        if self._chance.random() < 0.3:
            lines.append("```python\n" + "\n".join(self._excerpt(self._length(8, 16, 30))[1]) + "\n```")
        return "\n".join(f"- {line}" if len(lines) > 3 else line for line in lines)

    def _some(self, sentences: tuple[str, ...], number: int) -> list[str]:
        """So many different ones, each about something."""
        return [
            sentence.format(
                name=self._chance.choice(names()),
                path=self._chance.choice(library())[0],
                line=self._chance.randint(2, 900),
                revision=f"{self._chance.randrange(16**7):07x}",
            )
            for sentence in self._chance.sample(sentences, number)
        ]

    def _length(self, *lengths: int) -> int:
        """One of the lengths, in lines, as the session's size makes it."""
        return max(round(self._chance.choice(lengths) * self._size), 1)

    # --- what tools do

    def _read(self) -> tuple[str, dict[str, Any], str]:
        path, lines, first = self._excerpt(self._length(30, 60, 110, 180, 240, 330))
        shown = "\n".join(f"{first + at}\t{line}" for at, line in enumerate(lines))
        return "read_file", {"path": path, "from": first, "to": first + len(lines) - 1}, shown

    def _search(self) -> tuple[str, dict[str, Any], str]:
        found = []
        for _ in range(self._length(1, 3, 6, 10, 16, 25)):
            path, lines, first = self._excerpt(1)
            found.append(f"{path}:{first}: {lines[0].strip()[:120]}")
        return "search", {"text": self._chance.choice(names()), "under": "."}, "\n".join(found)

    def _test(self) -> tuple[str, dict[str, Any], str]:
        modules = [self._chance.choice(library())[0] for _ in range(self._length(1, 3, 8, 20))]
        lines = [
            f"tests/test_{path.replace('/', '_')} {'.' * self._chance.randint(3, 40)}" for path in modules
        ]
        failed = self._chance.random() < 0.4
        if failed:
            path, code, first = self._excerpt(self._length(5, 12, 25))
            lines += [
                f"FAILED {path}::{self._chance.choice(names())}",
                *code,
                f"{path}:{first}: AssertionError",
            ]
        seconds = self._chance.randint(2, 900) / 10
        lines.append(f"{int(failed)} failed, {self._chance.randint(20, 900)} passed in {seconds} s")
        command = f"python -m pytest -q {' '.join(modules[:3])}"
        return "run", {"command": command}, "\n".join([*lines, f"exit code {int(failed)}"])

    def _edit(self) -> tuple[str, dict[str, Any], str]:
        path, lines, first = self._excerpt(self._length(5, 10, 20))
        arguments = {"path": path, "at": first, "new": "\n".join(lines)}
        return "edit_file", arguments, f"{path}: {len(lines)} lines replaced at line {first}."

    def _list(self) -> tuple[str, dict[str, Any], str]:
        paths = sorted(self._chance.choice(library())[0] for _ in range(self._length(5, 10, 20, 40)))
        listed = "\n".join(f"{self._chance.randint(400, 90_000):7} {path}" for path in paths)
        return "list_files", {"path": paths[0].partition("/")[0]}, listed

    def _query(self) -> tuple[str, dict[str, Any], str]:
        rows = [
            {
                "id": f"JOB-{self._chance.randint(10_000, 99_999)}",
                "state": self._chance.choice(("done", "failed", "waiting")),
                "started": f"2026-0{self._chance.randint(1, 9)}-{self._chance.randint(10, 28)}T04:12:00Z",
                "seconds": self._chance.randint(1, 4_000),
                "file": self._chance.choice(library())[0],
                "by": self._chance.choice(names()),
            }
            for _ in range(self._length(1, 4, 10, 24))
        ]
        return "query_jobs", {"where": f"id >= {rows[0]['id']}", "limit": len(rows)}, json.dumps(rows)

    def _excerpt(self, most: int) -> tuple[str, tuple[str, ...], int]:
        """A file, some of its lines, and the number of the first."""
        path, lines = self._chance.choice(library())
        length = min(self._chance.randint((most + 1) // 2, most), len(lines))
        first = self._chance.randint(0, len(lines) - length)
        return path, lines[first : first + length], first + 1

    def _one_of(self, weighted: tuple[tuple[Any, int], ...]) -> Any:
        return self._chance.choices([each for each, _ in weighted], [weight for _, weight in weighted])[0]


def session(turns: int, seed: int = 0, *, size: float = 1.0) -> Iterator[Message]:
    """The messages of so many turns; ids of calls are unique within it. ``size`` as in `Session`."""
    drawn = Session(seed, size)
    for _ in range(turns):
        yield from drawn.turn()


def main() -> None:
    from perdure.chat.tokens import counter_for

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=float, default=1.0)
    asked = parser.parse_args()
    counter = counter_for("o200k_base")
    number: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    for message in session(asked.turns, asked.seed, size=asked.size):
        counted = counter.message(message)
        role = "call" if message.get("tool_calls") else message["role"]
        number[role] += 1
        tokens[role] += counted
        largest[role] = max(largest[role], counted)
    calls = number["call"] + number["assistant"]
    print(f"{asked.turns} turns: {calls} model calls, {number.total()} messages, {tokens.total()} tokens,")
    print(f"{tokens.total() / calls:.0f} a call, {tokens.total() / number.total():.0f} a message")
    for role, many in number.items():
        print(f"{role:10} {many:6} of {tokens[role] / many:6.0f} tokens, at most {largest[role]}")


if __name__ == "__main__":
    main()
