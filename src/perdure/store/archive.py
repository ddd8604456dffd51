"""The archive: every entry of the sessions, searched by words and by meaning.

It holds what the journal holds, cut into passages; what is in it is derived and can be made anew.
Words are there as soon as an entry is written. Vectors come behind the work, from whoever has an
embedder; until then a passage is found by its words alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perdure.config import Reach
from perdure.memory.passages import Pool, Query
from perdure.memory.ranges import Ranges

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Scope:
    """What is searched. ``only``: of the sessions in reach this one; ``between``: only these entries, of that
    one or else of the session itself; ``hidden``: ranges of the session's own entries that are not looked
    for, since they are in view."""

    session: str
    reach: Reach = "session"
    between: tuple[int, int] | None = None
    hidden: Ranges = ()
    only: str = ""


class Archive(Protocol):
    """All calls may raise `perdure.errors.StoreError`. Threads may share it."""

    def pool(self, query: Query, scope: Scope) -> Pool:
        """The passages that are nearest to the query by words and by meaning, with their neighbours."""
        ...

    def reaches(self, scope: Scope, session: str) -> bool:
        """Whether there is a session of this name in scope."""
        ...

    def holds(self, session: str, entry: int) -> bool:
        """Whether the session has this entry, and it is among what is searched."""
        ...

    def behind(self, scope: Scope) -> int:
        """Entries of the sessions in scope that a search can't find yet, since they couldn't be taken in."""
        ...

    def without_vector(
        self, embedder: str, limit: int, scope: Scope | None = None, masked: bool = False
    ) -> list[tuple[int, str]]:
        """Ids and texts of passages of the sessions in scope (None: of all) that have no vector of this
        embedder, the newest first. ``masked``: without secrets, those too that a passage's border goes
        through."""
        ...

    def keep_vectors(self, embedder: str, vectors: Mapping[int, NDArray[float32]]) -> None:
        """Keep unit vectors by passage, all of one length. Of passages that are gone meanwhile, nothing is
        kept. An embedder whose vectors had another length is another one: what it made before is passed over,
        and waits for a new vector."""
        ...

    def close(self) -> None: ...
