"""A session as a file: JSONL to come back with, Markdown and HTML to read. Pure.

All three mask secrets unless ``raw``. JSONL loses nothing else: `perdure.chat.foreign.read_history`
gives back the same messages, kinds and times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.chat.language import Language, say
from perdure.chat.messages import Entry, Kind
from perdure.faces.cli.terminal import printable
from perdure.faces.export_html import as_html
from perdure.faces.export_records import (
    IMAGE,
    UNDONE,
    EntryShown,
    EventShown,
    as_json_text,
    masked_event,
    masked_message,
    masked_value,
    shown,
)
from perdure.faces.harmless import harmless
from perdure.store.journal import Recorded

__all__ = ["as_html", "as_jsonl", "as_markdown"]

#: The version of the JSONL form.
VERSION = 1
_SURROGATE = re.compile("[\ud800-\udfff]")
_FENCE = re.compile("`{3,}")
#: What is said in words; all else is data, and stands between fences.
_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL_CALL, Kind.PLAN})


def as_jsonl(
    records: Sequence[Entry | Recorded],
    session: str,
    settings: Mapping[str, Any] | None = None,
    *,
    raw: bool = False,
) -> Iterator[str]:
    """Lines, each with its end: a header, then each record in its order."""
    given = dict(settings or {})
    yield _line({"perdure": VERSION, "session": session, "settings": given if raw else masked_value(given)})
    for record in records:
        if isinstance(record, Entry):
            yield _line(
                {
                    "entry": record.seq,
                    "kind": record.kind.value,
                    "time": record.time,
                    "tokens": record.tokens,
                    **({"lane": record.lane} if record.lane else {}),
                    "message": record.message if raw else masked_message(record.message),
                }
            )
        else:
            body = dict(record.body) if raw else masked_event(record)
            yield _line({"event": record.type, "after": record.after, "time": record.time, "body": body})


def _line(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    # A lone surrogate is no text and could not be written; escaped, it comes back.
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def as_markdown(
    records: Sequence[Entry | Recorded],
    session: str,
    settings: Mapping[str, Any] | None = None,
    *,
    raw: bool = False,
    lang: Language = "en",
) -> Iterator[str]:
    """What was said stands in quotations, so that a heading or an open fence in it ends with it, and is
    nothing but shown (see `harmless`); what tools showed stands between fences."""
    yield f"# {_plain(printable(session))}\n"
    if settings:
        given = dict(settings) if raw else masked_value(dict(settings))
        yield _fenced(printable(as_json_text(given)), "json")
    for each in shown(records, raw=raw, lang=lang):
        yield from _markdown_of(each, lang)


def _markdown_of(each: EntryShown | EventShown, lang: Language) -> Iterator[str]:
    if isinstance(each, EventShown):
        yield f"\n*{_plain(each.what)}*\n"
        if each.text:
            yield _quoted(each.text)
        return
    if each.turn:
        yield f"\n## {_plain(each.title(lang))}\n"
    undone = say(UNDONE, lang) if each.undone else ""
    head = (str(each.number), _plain(each.who), each.time, undone)
    yield f"\n### {' · '.join(part for part in head if part)}\n"
    if each.text:
        yield _quoted(each.text) if each.kind in _SPOKEN else _fenced(each.text)
    for _ in each.images:
        yield f"\n[{say(IMAGE, lang)}]\n"
    for call in each.calls:
        yield f"\n{_code(call.name)}\n{_fenced(call.arguments, 'json')}"


def _quoted(text: str) -> str:
    # Escaped as it stands there: in a quotation, a tab indents less.
    return "\n" + harmless("".join(f"> {line}".rstrip() + "\n" for line in text.split("\n")))


def _fenced(text: str, language: str = "") -> str:
    """Between fences that are longer than any inside."""
    fence = "`" * (max((len(run) for run in _FENCE.findall(text)), default=2) + 1)
    return f"\n{fence}{language}\n{text}\n{fence}\n"


def _code(name: str) -> str:
    return f"`{' '.join(name.replace('`', ' ').split())}`"


def _plain(text: str) -> str:
    """On one line, with what Markdown would take for markup escaped."""
    return re.sub(r"([\\`*_\[\]<>#&~|])", r"\\\1", " ".join(text.split()))
