"""Notice when a turn goes round in circles: A A A, or A B A B.

A round is one message's calls with their results. It is *stale* when every call in it, with the
same arguments, gave a result that this turn has already seen. Anything new begins the count
anew, so polling a status that changes, reading page after page, or running the same failing
test between two edits is no circle; a mere success is not new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from perdure.chat.calls import ToolCall

#: Stale rounds in a row after which the model is told, and after which the turn ends.
TELL_AFTER = 2
END_AFTER = 4


class Repeats:
    """Counts the stale rounds of one turn."""

    def __init__(self) -> None:
        self.stale = 0
        self._seen: set[tuple[str, str, str]] = set()

    def after(self, round: Iterable[tuple[ToolCall, str]]) -> None:
        """Take in a round: its calls, each with the text of its result."""
        shown = {(call.name, _canonical(call.arguments), result) for call, result in round}
        self.stale = self.stale + 1 if shown <= self._seen else 0
        self._seen |= shown

    @property
    def tell(self) -> bool:
        return self.stale == TELL_AFTER

    @property
    def end(self) -> bool:
        return self.stale >= END_AFTER


def _canonical(arguments: str) -> str:
    """The same arguments in another order of keys are the same arguments."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments
