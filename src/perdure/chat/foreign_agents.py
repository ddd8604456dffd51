"""Session files of other agents: Claude Code, Codex, pi.

Each writes one JSON object a line: messages among bookkeeping of its own. Taken over is what was said
and done on the branch that stands. A summary that one of them made is not: what it was made from is in
the same file. What the person did not write, though it stands in a user's message, becomes a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from perdure.chat.foreign_items import Reading, add_item, add_message, call, texts_of, type_of, utc
from perdure.chat.messages import Kind
from perdure.errors import Words

Record = dict[str, Any]

BOOKKEEPING: Words = (
    "{count} {count:record that holds|records that hold} no message",
    "{count} 条不含消息的记录",
)
SIDECHAINS: Words = ("{count} {count:message|messages} of sub-agents", "{count} 条子代理的消息")
META: Words = (
    "{count} {count:message|messages} that the other program wrote for itself",
    "{count} 条另一程序为自身写下的消息",
)
SUMMARIES: Words = (
    "{count} {count:summary|summaries} of what is in the file anyway",
    "{count} 份对文件中已有内容的摘要",
)
ABANDONED: Words = (
    "{count} {count:message|messages} on branches that were given up",
    "{count} 条已放弃分支上的消息",
)
ROLLED_BACK: Words = (
    "{count} {count:message|messages} of turns that were taken back",
    "{count} 条已撤销回合的消息",
)
INSTRUCTIONS: Words = (
    "{count} {count:instruction|instructions} of the other agent",
    "{count} 条另一代理的指令",
)

_CODEX = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"})


def is_codex(record: Record) -> bool:
    return type_of(record) in _CODEX and isinstance(record.get("payload"), dict)


def is_claude_code(record: Record) -> bool:
    message = record.get("message")
    return (
        record.get("type") in ("user", "assistant")
        and isinstance(message, dict)
        and message.get("role", record["type"]) == record["type"]
    )


def is_pi(record: Record) -> bool:
    if record.get("type") == "session":
        return isinstance(record.get("id"), str) and "timestamp" in record
    return record.get("type") == "message" and isinstance(record.get("message"), dict)


# --- Codex


def read_codex(reading: Reading, records: Sequence[Record]) -> None:
    """Rollout lines: `response_item` holds an item of the Responses form. What the person wrote is told
    by the `user_message` events; where there are such, another message in the user's name is a notice."""
    typed = {
        record["payload"]["message"]
        for record in records
        if is_codex(record)
        and record["payload"].get("type") == "user_message"
        and isinstance(record["payload"].get("message"), str)
    }
    begun = [
        record["payload"] for record in records if is_codex(record) and type_of(record) == "session_meta"
    ]
    _count_conversations(reading, (each.get("id") for each in begun))
    for record in records:
        payload = record["payload"] if is_codex(record) else {}
        type = type_of(record)
        if type == "response_item" and payload.get("role") in ("developer", "system"):
            reading.left_out[INSTRUCTIONS] += 1
        elif type == "response_item":
            kind = None
            if payload.get("role") == "user":
                texts = texts_of(payload.get("content"))
                whole = {*texts, "".join(texts), "\n".join(texts)}
                kind = Kind.NOTICE if typed and typed.isdisjoint(whole) else Kind.USER
            add_item(reading, payload, kind=kind, time=utc(record.get("timestamp")))
        elif type == "compacted":
            reading.left_out[SUMMARIES] += 1
        elif payload.get("type") == "thread_rolled_back":
            _roll_back(reading, payload.get("num_turns"))
        else:
            reading.left_out[BOOKKEEPING] += 1


def _roll_back(reading: Reading, turns: Any) -> None:
    turns = turns if isinstance(turns, int) else 0
    while turns > 0 and reading.said:
        turns -= reading.said.pop().kind is Kind.USER
        reading.left_out[ROLLED_BACK] += 1


# --- Claude Code


def read_claude_code(reading: Reading, records: Sequence[Record]) -> None:
    """Lines with a message of content blocks. One answer of the model may stand on several lines, which
    share the message's id. Sub-agents are left out, unless the file is a sub-agent's own."""
    given_up = _given_up(records)
    lines = [record for record in records if is_claude_code(record)]
    _count(reading, BOOKKEEPING, len(records) - len(lines))
    main = [line for line in lines if not line.get("isSidechain")] or lines
    _count_conversations(reading, (line.get("sessionId") for line in main))
    _count(reading, SIDECHAINS, len(lines) - len(main))
    standing = [line for line in main if not _is_in(line.get("uuid"), given_up)]
    _count(reading, ABANDONED, len(main) - len(standing))
    kept = []
    for line in standing:
        if line.get("isCompactSummary"):
            reading.left_out[SUMMARIES] += 1
        elif _is_meta(line):
            reading.left_out[META] += 1
        else:
            kept.append(line)
    for _, group in groupby(enumerate(kept), key=_answer):
        _add_lines(reading, [line for _, line in group])


def _is_meta(line: Record) -> bool:
    written = line.get("isMeta") or line.get("isVisibleInTranscriptOnly") or line.get("isApiErrorMessage")
    return bool(written) and not _results_in(line)


def _results_in(line: Record) -> bool:
    content = line["message"].get("content")
    parts = content if isinstance(content, list) else ()
    return any(isinstance(part, dict) and part.get("type") == "tool_result" for part in parts)


def _answer(numbered: tuple[int, Record]) -> str | int:
    """What the lines of one answer share; lines of no answer share nothing."""
    number, line = numbered
    id = line["message"].get("id")
    return id if line["type"] == "assistant" and isinstance(id, str) else number


def _add_lines(reading: Reading, lines: Sequence[Record]) -> None:
    first, time = lines[0]["message"], utc(lines[0].get("timestamp"))
    if len(lines) > 1:
        contents = (line["message"].get("content") for line in lines)
        parts = [part for each in contents for part in (each if isinstance(each, list) else [each])]
        first = {**first, "content": parts}
    add_message(reading, {**first, "role": lines[0]["type"]}, time=time)


def _given_up(records: Sequence[Record]) -> set[str]:
    """Where the person went back and wrote something else, two of their lines have the same parent: the
    newest stands, and the others with all that followed them do not. No line is given up because its
    parent is missing, or because it is one of several results."""
    newest: dict[str, int] = {}
    for number, record in enumerate(records):
        if _is_typed(record):
            newest[record["parentUuid"]] = number
    given_up: set[str] = set()
    for number, record in enumerate(records):
        parent, id = record.get("parentUuid"), record.get("uuid")
        older = _is_typed(record) and newest[record["parentUuid"]] != number
        if isinstance(id, str) and (older or _is_in(parent, given_up)):
            given_up.add(id)
    return given_up


def _is_in(id: Any, given_up: set[str]) -> bool:
    return isinstance(id, str) and id in given_up


def _is_typed(record: Record) -> bool:
    """A line that the person wrote, behind another."""
    by_person = is_claude_code(record) and record["type"] == "user"
    return (
        by_person
        and isinstance(record.get("parentUuid"), str)
        and not (record.get("isMeta") or record.get("isSidechain") or _results_in(record))
    )


# --- pi


def read_pi(reading: Reading, records: Sequence[Record]) -> None:
    """Entries that each name their parent; the newest one's branch stands. What extensions said in the
    user's name becomes a notice, and a command that the person ran a call with its result."""
    path = _branch(records)
    _count_conversations(reading, (each.get("id") for each in path if each.get("type") == "session"))
    entries = sum(record.get("type") == "message" for record in records)
    _count(reading, ABANDONED, entries - sum(record.get("type") == "message" for record in path))
    for record in path:
        type, time = type_of(record), utc(record.get("timestamp"))
        if type == "message" and isinstance(record.get("message"), dict):
            _add_pi(reading, record["message"], time)
        elif type == "custom_message":
            add_message(
                reading, {"role": "user", "content": record.get("content")}, kind=Kind.NOTICE, time=time
            )
        elif type in ("compaction", "branch_summary"):
            reading.left_out[SUMMARIES] += 1
        elif type != "session":
            reading.left_out[BOOKKEEPING] += 1


def _branch(records: Sequence[Record]) -> list[Record]:
    """From the newest entry back, each time to its parent; where that is missing (an old file, a damaged
    line), to the entry before."""
    place = {record["id"]: at for at, record in enumerate(records) if isinstance(record.get("id"), str)}
    path = []
    at = len(records) - 1
    while at >= 0:
        path.append(records[at])
        parent = records[at].get("parentId")
        found = place.get(parent, at) if isinstance(parent, str) else at
        at = found if found < at else at - 1
    return path[::-1]


def _add_pi(reading: Reading, message: Record, time: str) -> None:
    role = message.get("role")
    if role == "toolResult":
        result = {"type": "tool_result", "tool_use_id": message.get("toolCallId")}
        add_message(
            reading,
            {"role": "user", "content": [{**result, "content": message.get("content")}]},
            time=time,
        )
    elif role == "bashExecution":
        if message.get("excludeFromContext"):
            reading.left_out[META] += 1
        else:
            _add_command(reading, message, time)
    elif role in ("custom", "hookMessage"):
        add_message(reading, {**message, "role": "user"}, kind=Kind.NOTICE, time=time)
    elif role in ("compactionSummary", "branchSummary"):
        reading.left_out[SUMMARIES] += 1
    else:
        content = message.get("content")
        if isinstance(content, list):
            content = [_as_block(part) for part in content]
        add_message(reading, {"role": role, "content": content}, time=time)


def _as_block(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") == "toolCall":
        named = {"id": part.get("id"), "name": part.get("name"), "input": part.get("arguments")}
        return {"type": "tool_use", **named}
    return part


def _add_command(reading: Reading, message: Record, time: str) -> None:
    id = f"bash-{len(reading.said)}"
    made = call(id, "bash", {"command": message.get("command")})
    reading.add({"role": "assistant", "content": None, "tool_calls": [made]}, None, time)
    code = message.get("exitCode")
    shown = str(message.get("output") or "")
    if isinstance(code, int) and code:
        shown = f"{shown}\n[exit code {code}]"
    reading.add({"role": "tool", "tool_call_id": id, "content": shown}, None, time)


def _count_conversations(reading: Reading, ids: Iterable[Any]) -> None:
    """Conversations that stand in the file one after the other, by their ids."""
    reading.conversations = max(len({id for id in ids if isinstance(id, str)}), 1)


def _count(reading: Reading, what: Words, times: int) -> None:
    if times > 0:
        reading.left_out[what] += times
