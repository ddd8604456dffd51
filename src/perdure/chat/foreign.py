"""Read a conversation from a file that perdure or another program wrote.

The form is recognised by what stands in the file, never by its name. What comes out are chat messages
as they were found: `History.mended` makes a valid history of them. Damaged records are named and kept
aside (see `perdure.chat.foreign_lines`), and what is left out on purpose is counted and said.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any

from perdure.chat.foreign_agents import (
    BOOKKEEPING,
    ROLLED_BACK,
    Record,
    is_claude_code,
    is_codex,
    is_pi,
    read_claude_code,
    read_codex,
    read_pi,
)
from perdure.chat.foreign_items import BLOCKS, ITEMS, Reading, Said, add_item, type_of, utc
from perdure.chat.foreign_lines import NO_MESSAGE, Damage, Value, as_bytes, values_in
from perdure.chat.language import Language, say
from perdure.chat.messages import Kind, Message, kind_of
from perdure.chat.repair import Repair, repair
from perdure.errors import ImportUnreadable, Words

EMPTY: Words = ("it is empty", "它是空的")
WITHOUT_MESSAGE: Words = ("there is no message in it", "其中没有消息")
NO_JSON: Words = ("it is no JSON", "它不是 JSON")

#: Marks a message's place while it is mended; no wire form has such a field.
_PLACE = "perdure place"
_TIMES = ("time", "timestamp", "created_at")
#: Events of our own export that tell its settings.
_TELLING = ("session.created", "session.opened")
_LISTS = ("messages", "input", "items", "output")
#: Kinds that only the message itself decides.
_STRUCTURAL = frozenset({Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ASSISTANT})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not taken over, and how often; ``words`` have a place for ``count``."""

    words: Words
    count: int

    def say(self, lang: Language) -> str:
        return say(self.words, lang, count=self.count)


@dataclass(frozen=True, slots=True)
class History:
    """``form``: `perdure`, `chat`, `anthropic`, `responses`, `codex`, `claude-code` or `pi`. ``messages``
    as they were found, before any repair; ``kinds`` and ``times`` stand beside them, None and empty where
    the file doesn't tell, and ``lanes``: in whose window each stood. ``settings``: those of our own export,
    and ``system`` where the file has a system prompt; ``session``: the name in our own export;
    ``conversations``: how many stood in the file,
    one after the other."""

    form: str
    messages: Sequence[Message]
    kinds: Sequence[Kind | None]
    times: Sequence[str]
    damages: Sequence[Damage] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[LeftOut] = ()
    session: str = ""
    conversations: int = 1
    lanes: Sequence[str] = ()

    def mended(self) -> tuple[list[tuple[Kind, Message, str, str]], list[Repair]]:
        """The messages as a valid history (see `perdure.chat.repair.repair`), each with its kind, its time
        and its lane; and what was repaired. A stand-in has the time of what comes before it, and stands
        behind it. Each lane is a history of its own."""
        lanes = self.lanes or [""] * len(self.messages)
        mended: list[tuple[int, tuple[Kind, Message, str, str]]] = []
        repairs: list[Repair] = []
        for lane in dict.fromkeys(lanes):
            of_lane = [at for at, each in enumerate(lanes) if each == lane]
            messages, repaired = repair([{**self.messages[at], _PLACE: at} for at in of_lane])
            places = [*of_lane, len(self.messages)]
            repairs += [replace(each, at=places[min(each.at, len(of_lane))]) for each in repaired]
            place, time = -1, ""
            for message in messages:
                at = message.pop(_PLACE, None)
                kind = None if at is None else self.kinds[at]
                # What was moved to its call stands where it is now.
                place, time = (place, time) if at is None else (max(place, at), self.times[at])
                mended.append((place, (_kind(kind, message), message, time, lane)))
        return [each for _, each in sorted(mended, key=itemgetter(0))], sorted(repairs, key=attrgetter("at"))


def read_history(data: bytes, name: str = "") -> History:
    """The conversation in a file. ``name`` is only for the error's words.

    Read are: perdure's JSONL export; chat messages as a JSON array, as an object with ``messages``, or one
    a line; Anthropic's messages and the items of OpenAI's Responses in the same three ways; the session
    files of Claude Code, Codex and pi. A file with a conversation on each line (as for fine-tuning, or a
    log of requests) is read whole, in order, as one: whoever has a conversation cut in pieces gets it
    back, and what isn't wanted can be cut off by a fork. A line that repeats the one before and goes
    on takes its place.

    A system prompt at the beginning is in ``settings``; in mid-conversation it becomes a notice. Must not
    raise, but `ImportUnreadable` where nothing can be read as a conversation.
    """
    values, damages = values_in(data)
    records = [value.value for value in values if isinstance(value.value, dict)]
    form, read = _form_of(records)
    reading = Reading(damages=damages)
    if read is None:
        _read_plain(reading, values)
        form = next((each for each in ("responses", "anthropic") if each in reading.forms), "chat")
    else:
        read(reading, records)
        _name_others(reading, values)
    session = ""
    if form == "perdure":
        session = next((str(each.get("session") or "") for each in records if "perdure" in each), "")
    elif not reading.said:
        raise ImportUnreadable(_why(data, values), name=name or "?")
    return History(
        form=form,
        messages=[each.message for each in reading.said],
        kinds=[each.kind for each in reading.said],
        times=[each.time for each in reading.said],
        lanes=[each.lane for each in reading.said],
        damages=sorted(reading.damages, key=lambda damage: damage.line),
        settings=reading.settings,
        left_out=[LeftOut(words, count) for words, count in reading.left_out.items()],
        session=session,
        conversations=reading.conversations,
    )


def _why(data: bytes, values: Sequence[Value]) -> Words:
    if not data.strip(b" \t\r\n\0"):
        return EMPTY
    return WITHOUT_MESSAGE if values else NO_JSON


def _form_of(records: Sequence[Record]) -> tuple[str, Callable[[Reading, Sequence[Record]], None] | None]:
    """The form that most of the records have, and its reader; None for messages that stand by themselves."""
    votes: Counter[str] = Counter()
    for record in records:
        for form, has_it, _ in _FORMS:
            if has_it(record):
                votes[form] += 1
                break
        else:
            votes["chat"] += "role" in record or any(isinstance(record.get(each), list) for each in _LISTS)
    form = votes.most_common(1)[0][0] if votes else "chat"
    return form, next((read for each, _, read in _FORMS if each == form), None)


def _name_others(reading: Reading, values: Sequence[Value]) -> None:
    for each in values:
        if not isinstance(each.value, dict):
            reading.damages.append(Damage(each.line, NO_MESSAGE, as_bytes(each.value)))


# --- our own export


def _is_own(record: Record) -> bool:
    is_entry = "entry" in record and isinstance(record.get("message"), dict)
    is_event = isinstance(record.get("event"), str) and "after" in record
    return is_entry or is_event or ("perdure" in record and "session" in record)


def _read_own(reading: Reading, records: Sequence[Record]) -> None:
    """Entries stand as they are. What was taken back is left out: a `turn.undone` names its entries."""
    # Of exports one behind the other, each has numbers of its own.
    undone: list[list[tuple[int, int]]] = [[]]
    said: list[tuple[Any, int, Said]] = []
    reading.conversations = max(sum("perdure" in each for each in records), 1)
    for record in records:
        if "perdure" in record:
            undone.append([])
        if isinstance(record.get("message"), dict) and "entry" in record:
            message, time = record["message"], record.get("time")
            kept = time if isinstance(time, str) and utc(time) else ""
            lane = record.get("lane")
            read = Said(message, _kind_named(record.get("kind")), kept, lane if isinstance(lane, str) else "")
            said.append((record["entry"], len(undone) - 1, read))
        elif record.get("event") == "turn.undone":
            undone[-1] += _ranges(record.get("body"))
        elif record.get("event") in _TELLING and isinstance(record.get("body"), dict):
            told = {name: record["body"].get(name) for name in ("system", "lang")}
            reading.settings |= {name: text for name, text in told.items() if isinstance(text, str)}
        elif "perdure" in record and isinstance(record.get("settings"), dict):
            reading.settings |= record["settings"]
        elif "event" not in record and "perdure" not in record:
            reading.left_out[BOOKKEEPING] += 1
    gone = [_inside(ranges) for ranges in undone]
    for number, part, each in said:
        if isinstance(number, int) and gone[part](number):
            reading.left_out[ROLLED_BACK] += 1
        else:
            reading.said.append(each)


def _ranges(body: Any) -> list[tuple[int, int]]:
    first, last = (body.get("first"), body.get("last")) if isinstance(body, dict) else (None, None)
    return [(first, last)] if isinstance(first, int) and isinstance(last, int) else []


def _inside(ranges: Sequence[tuple[int, int]]) -> Callable[[int], bool]:
    """Whether a number is in one of the ranges, in logarithmic time."""
    apart: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if apart and first <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    begins = [first for first, _ in apart]
    return lambda number: (at := bisect_right(begins, number) - 1) >= 0 and number <= apart[at][1]


def _kind_named(name: Any) -> Kind | None:
    return Kind(name) if isinstance(name, str) and name in set(Kind) else None


def _kind(told: Kind | None, message: Message) -> Kind:
    """The kind that the file tells, where the message can be of it."""
    own = kind_of(message)
    if told is None or told in _STRUCTURAL or own in (Kind.TOOL_CALL, Kind.TOOL_RESULT):
        return own
    return told if own is Kind.USER or told is Kind.PLAN else own


# --- messages that stand by themselves


def _read_plain(reading: Reading, values: Sequence[Value]) -> None:
    """Chat messages, Anthropic's messages, Responses items; by themselves or in lists."""
    before: list[Any] = []
    lists = 0
    for each in values:
        items = _items_in(each.value)
        if items is None:
            if isinstance(each.value, dict) and _is_message(each.value):
                _add(reading, each.value)
            elif _is_bookkeeping(each.value):
                reading.left_out[BOOKKEEPING] += 1
            else:
                reading.damages.append(Damage(each.line, NO_MESSAGE, as_bytes(each.value)))
            continue
        goes_on = bool(before) and items[: len(before)] == before
        lists += bool(items) and not goes_on
        _add_list(reading, each, items[len(before) :] if goes_on else items)
        before = items
    reading.conversations = max(lists, 1)


def _add_list(reading: Reading, value: Value, items: Sequence[Any]) -> None:
    if isinstance(value.value, dict):
        for name in ("system", "instructions"):
            told = value.value.get(name)
            if told and not reading.said and "system" not in reading.settings:
                _add(reading, {"role": "system", "content": told})
    for item in items:
        if isinstance(item, dict) and _is_message(item):
            if not (_is_system(item) and _says_the_same(reading, item)):
                _add(reading, item)
        else:
            reading.damages.append(Damage(value.line, NO_MESSAGE, as_bytes(item)))


def _items_in(value: Any) -> list[Any] | None:
    """The messages or items in a list, or in an object that holds one; None for anything else."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or _is_message(value):
        return None
    lists = [value[name] for name in _LISTS if isinstance(value.get(name), list)]
    return [item for each in lists for item in each] if lists else None


def _is_message(item: Mapping[str, Any]) -> bool:
    return "role" in item or type_of(item) in ITEMS or type_of(item).endswith(("_call", "_output"))


def _is_bookkeeping(value: Any) -> bool:
    """What early Codex files have between their items."""
    return isinstance(value, dict) and ("record_type" in value or {"id", "instructions"} <= set(value))


def _add(reading: Reading, item: Mapping[str, Any]) -> None:
    content = item.get("content")
    types = {type_of(part) for part in content if isinstance(part, dict)} if isinstance(content, list) else ()
    if type_of(item) in ITEMS or type_of(item) == "message":
        reading.forms.add("responses")
    elif not BLOCKS.isdisjoint(types):
        reading.forms.add("anthropic")
    time = next((found for name in _TIMES if (found := utc(item.get(name)))), "")
    add_item(reading, item, time=time)


def _is_system(item: Mapping[str, Any]) -> bool:
    return item.get("role") in ("system", "developer")


def _says_the_same(reading: Reading, item: Mapping[str, Any]) -> bool:
    """The system prompt that stands already: each conversation in a file brings it again."""
    return bool(reading.said) and item.get("content") == reading.settings.get("system")


_FORMS: tuple[tuple[str, Callable[[Record], bool], Callable[[Reading, Sequence[Record]], None]], ...] = (
    ("perdure", _is_own, _read_own),
    ("codex", is_codex, read_codex),
    ("claude-code", is_claude_code, read_claude_code),
    ("pi", is_pi, read_pi),
)
