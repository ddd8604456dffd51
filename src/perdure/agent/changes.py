"""What tools change in files, kept in the journal right before it happens, so that it can be taken back."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from perdure.chat.messages import Entry
from perdure.store.journal import Recorded
from perdure.tools.changes import FileChange, Kept, digest
from perdure.tools.places import Content

if TYPE_CHECKING:
    from perdure.agent.conversation import Conversation

#: The event of a change.
CHANGED = "file.changed"


class FileChanges:
    """`perdure.tools.changes.ChangeLog` of one conversation."""

    def __init__(self) -> None:
        self._conversation: Conversation | None = None

    def begin(self, conversation: Conversation) -> None:
        """Serve this conversation."""
        self._conversation = conversation

    def will_change(self, change: FileChange) -> None:
        if self._conversation is None:
            raise RuntimeError("begin() comes first")
        before = change.before
        body: dict[str, Any] = {
            "path": change.path,
            "existed": before is not None,
            "before": packed(before.data) if before else None,
            "mode": before.mode if before else None,
            "after": digest(change.after),
        }
        self._conversation.record(CHANGED, body)


def kept_changes(records: Iterable[Entry | Recorded], first: int, last: int) -> Iterator[Kept]:
    """The changes that were made between two entries, in order."""
    for record in records:
        if isinstance(record, Recorded) and record.type == CHANGED and first <= record.after <= last:
            body = record.body
            known = body["existed"] and body["before"] is not None
            before = Content(unpacked(body["before"]), body["mode"]) if known else None
            yield Kept(body["path"], body["existed"], before, body["after"])


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
