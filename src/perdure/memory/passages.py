"""What is searched: passages, pieces of entries that are small enough to be recalled as one. Pure.

An archive finds candidates (by words and by meaning) and hands them over with their neighbours as a
`Pool`; `perdure.memory.ranking` says which of them matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.chat.encodings import sendable
from perdure.chat.messages import Kind, Message, text_of

if TYPE_CHECKING:
    from numpy import bool_, float32
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of an entry. ``id``: of passages that follow one another in a session, ids do too; ``part``
    from 0 within the entry; ``words`` as `perdure.memory.words` segments its text; ``time`` UTC, ISO
    8601."""

    id: int
    session: str
    entry: int
    part: int
    kind: Kind
    time: str
    text: str
    words: tuple[str, ...]


def moment(passage: Passage) -> tuple[str, str]:
    """The session and the minute that a passage is from."""
    return passage.session, passage.time[:16]


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. ``vector``: its meaning, as the ``embedder`` of this name gives it; None where
    there is none."""

    text: str
    words: tuple[str, ...]
    vector: NDArray[float32] | None = None
    embedder: str = ""


@dataclass(frozen=True, slots=True)
class Corpus:
    """All passages in the scope that is searched: how many, how many words they have on average, and
    in how many of them each word of the query stands. ``likeness``: mean and standard deviation of the
    query's cosine with any of them."""

    passages: int
    length: float
    holding: Mapping[str, int]
    likeness: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates and their neighbours, in the order of their ids. ``vectors``: a unit vector a row, zeros
    where a passage has none yet; ``candidate``: False for those that are neighbours only."""

    passages: Sequence[Passage]
    vectors: NDArray[float32]
    candidate: NDArray[bool_]
    corpus: Corpus


#: Kinds of entries that are searched: what people, models and tools said. The agent's own bookkeeping
#: isn't, so that an excerpt or a notice is never found as if somebody had said it.
SEARCHED = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL_CALL, Kind.TOOL_RESULT})
#: The tool whose results are excerpts of the archive.
RECALL = "recall"


def searchable(kind: Kind, message: Message, tool: str = "") -> str:
    """What of an entry is searched, as one text; empty where nothing is. ``tool``: whose result it is."""
    return "" if kind not in SEARCHED or tool == RECALL else whole_text(message, RECALL)


def whole_text(message: Message, but: str = "") -> str:
    """All that a message says, its calls included, but for those of one tool."""
    calls = (call["function"] for call in message.get("tool_calls") or ())
    asked = (f"{call['name']} {_readable(call['arguments'])}" for call in calls if call["name"] != but)
    return sendable("\n".join(part for part in (text_of(message), *asked) if part.strip()))


def _readable(arguments: str) -> str:
    """The arguments of a call without the escapes of JSON."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(values, dict):
        return arguments
    texts = (
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in values.values()
    )
    return "; ".join(f"{name}: {text}" for name, text in zip(values, texts, strict=True))
