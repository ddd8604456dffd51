"""Files of every form, broken in every field: each becomes a session that works, or a clear error."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.agent.conversation import Conversation
from perdure.agent.verifying import verified
from perdure.app import Sessions
from perdure.chat.foreign import read_history
from perdure.chat.messages import Entry, Kind
from perdure.chat.tokens import counter_for
from perdure.config import Settings
from perdure.errors import ImportUnreadable
from perdure.faces.cli.main import run
from perdure.faces.export import as_html, as_jsonl, as_markdown
from perdure.memory.budget import Budget
from perdure.memory.passages import searchable
from scripted_endpoint import wrong_messages

TIME = "2026-01-02T03:04:05.678+00:00"
USER = {"role": "user", "content": "list the files"}
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
SHOWN = {
    "role": "user",
    "content": [{"type": "text", "text": "this"}, {"type": "image_url", "image_url": {"url": "x"}}],
}
CHAT = [
    USER,
    CALLING,
    RESULT,
    {**RESULT, "tool_call_id": "c2"},
    SHOWN,
    {"role": "assistant", "content": "two"},
]
BLOCKS = [
    {"role": "user", "content": [{"type": "text", "text": "list"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "text", "text": "so"},
            {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.py"}]},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "document", "source": {"type": "text", "data": "d"}, "title": "t"},
        ],
    },
]
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "r1", "name": "bash", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "r1", "output": "a.py"},
    {"type": "local_shell_call", "call_id": "r2", "action": {"command": ["ls"]}},
    {"type": "local_shell_call_output", "call_id": "r2", "output": {"content": "a.py"}},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]},
]
FORMS: dict[str, list[Any]] = {
    "chat": CHAT,
    "old chat": [
        USER,
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
        {"role": "function", "name": "bash", "content": "a.py"},
    ],
    "object": [{"system": "be brief", "messages": CHAT}],
    "conversations": [{"messages": CHAT[:1]}, {"messages": CHAT}],
    "anthropic": BLOCKS,
    "responses": ITEMS,
    "codex": [
        {"timestamp": TIME, "type": "session_meta", "payload": {"id": "a"}},
        {"timestamp": TIME, "type": "event_msg", "payload": {"type": "user_message", "message": "list"}},
        *({"timestamp": TIME, "type": "response_item", "payload": item} for item in ITEMS),
        {"timestamp": TIME, "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}},
        {"timestamp": TIME, "type": "response_item", "payload": ITEMS[0]},
        {"timestamp": TIME, "type": "compacted", "payload": {"message": "short"}},
    ],
    "claude-code": [
        {
            "type": message["role"],
            "uuid": f"u{at}",
            "parentUuid": f"u{at - 1}" if at else None,
            "sessionId": "a",
            "timestamp": TIME,
            "message": {**message, "id": f"m{at}"},
        }
        for at, message in enumerate(BLOCKS)
    ],
    "pi": [
        {"type": "session", "id": "a", "timestamp": TIME},
        *(
            {
                "type": "message",
                "id": f"p{at}",
                "parentId": f"p{at - 1}",
                "timestamp": TIME,
                "message": message,
            }
            for at, message in enumerate(
                (
                    {"role": "user", "content": [{"type": "text", "text": "list"}], "timestamp": 1},
                    {
                        "role": "assistant",
                        "content": [{"type": "toolCall", "id": "q", "name": "bash", "arguments": {"a": 1}}],
                    },
                    {"role": "toolResult", "toolCallId": "q", "content": [{"type": "text", "text": "a.py"}]},
                    {"role": "bashExecution", "command": "ls", "output": "a.py", "exitCode": 1},
                )
            )
        ),
    ],
    "perdure": [
        {"perdure": 1, "session": "s", "settings": {"system": "be brief", "lang": "en", "workspace": "/w"}},
        {"event": "session.opened", "after": 0, "time": TIME, "body": {"system": "be brief", "lang": "zh"}},
        *(
            {"entry": at, "kind": kind.value, "time": TIME, "tokens": 9, "message": message}
            for at, (kind, message) in enumerate(
                zip(
                    (Kind.USER, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.TOOL_RESULT, Kind.NOTICE),
                    CHAT,
                    strict=False,
                ),
                1,
            )
        ),
        {"event": "compaction", "after": 3, "time": TIME, "body": {"left": [1]}},
        {"event": "turn.undone", "after": 5, "time": TIME, "body": {"first": 5, "last": 5}},
    ],
}
ODD: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        float("nan"),
        "",
        "x",
        "\ud800",
        "\0",
        [],
        {},
        [[]],
        [None],
        [1],
        ["a"],
    ),
    *({"a": None}, {"type": ["x"]}, [{"type": "text"}], [{"type": "text", "text": 5}], [{"type": None}]),
    *([{"type": "image_url"}], [{"type": "image_url", "image_url": 7}], [{"type": "input_audio"}]),
    *(
        [{"type": "tool_use", "id": 1, "name": None, "input": [1]}],
        [{"type": "tool_result", "tool_use_id": {}}],
    ),
    *(
        [{"type": "image", "source": 3}],
        [{"type": "toolCall", "id": []}],
        "tool",
        "function",
        "assistant",
        "system",
    ),
    *(
        [{}],
        [{"function": None}],
        [{"function": {"name": []}}],
        [{"id": {}, "function": "f"}],
        "[1]",
        "{",
        "c1",
    ),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from places(each, (*path, name))


def broken(records: list[Any], place: tuple[Any, ...], how: Any) -> list[Any]:
    """The records with one value replaced, taken out, or said twice."""
    records = copy.deepcopy(records)
    *above, name = place
    inside: Any = records
    for each in above:
        inside = inside[each]
    if how == "gone":
        del inside[name]
    elif how == "twice" and isinstance(inside, list):
        inside.insert(name, copy.deepcopy(inside[name]))
    elif how != "twice":
        inside[name] = how[1]
    return records


@st.composite
def broken_files(draw: st.DrawFn) -> bytes:
    records: list[Any] = FORMS[draw(st.sampled_from(sorted(FORMS)))]
    how = st.sampled_from(["gone", "twice"]) | st.sampled_from(ODD).map(lambda value: ("is", value))
    for _ in range(draw(st.integers(1, 4))):
        if not (where := list(places(records))):
            break
        records = broken(records, draw(st.sampled_from(where)), draw(how))
    lines = draw(st.booleans())
    text = (
        "\n".join(map(json.dumps, records))
        if lines
        else json.dumps(records, indent=draw(st.sampled_from([None, 1])))
    )
    data = text.encode()
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


def every_single_one() -> Iterator[bytes]:
    """Each place of each form, with each odd value."""
    for records in FORMS.values():
        for place in places(records):
            for how in ("gone", "twice", *(("is", value) for value in ODD)):
                yield "\n".join(map(json.dumps, broken(records, place, how))).encode()


def assert_works(sessions: Sessions, name: str) -> None:
    """The session can be read, exported, gone on with, searched, forked, taken back and forgotten."""
    journal = sessions.journal
    records = list(journal.records(name))
    for raw in (False, True):
        for write in (as_jsonl, as_html, as_markdown):
            "".join(write(records, name, raw=raw)).encode("utf-8", "backslashreplace")
    again = read_history("".join(as_jsonl(records, name, raw=True)).encode())
    assert list(again.messages) == [each.message for each in records if isinstance(each, Entry)]
    conversation = Conversation(journal, name, counter_for(None), Budget.of(8192), model="scripted")
    conversation.ask("and now?")
    conversation.compact()
    prompt = conversation.prompt()
    assert wrong_messages({"messages": prompt}) is None, prompt
    json.dumps(prompt).encode()
    conversation.add(Kind.ASSISTANT, {"role": "assistant", "content": "done"})
    assert not verified(journal, name).different
    sessions.recall(name, "list files", waits=0)
    sessions.fork(name, f"{name} again")
    assert sessions.undo_turn(name) is not None
    sessions.forget(name, [1])
    for each in (name, f"{name} again"):
        Conversation(journal, each, counter_for(None), Budget.of(8192), model="scripted").prompt()
        sessions.remove(each)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken") / "s.db"


@given(broken_files())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_file_becomes_a_session_that_works_or_a_clear_error(
    store: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    file = store.with_suffix(".jsonl")
    file.write_bytes(data)
    code = run(["sessions", "import", str(file), "--session", "s", "--store", str(store)])
    said = capsys.readouterr()
    with Sessions(Settings(store=str(store), embedder="none")) as sessions:
        if code:
            assert (code, said.out) == (2, "")
            assert said.err.startswith("perdure: Nothing in ")
            assert not (sessions.is_there and sessions.journal.exists("s"))
        else:
            assert_works(sessions, "s")


def test_each_field_of_each_form_may_be_of_any_type() -> None:
    for data in every_single_one():
        try:
            history = read_history(data)
        except ImportUnreadable:
            continue
        mended, _ = history.mended()
        for lane in {lane for *_, lane in mended}:
            messages = [message for _, message, _, where in mended if where == lane]
            assert wrong_messages({"messages": messages}) is None, data
        counter = counter_for(None)
        for kind, message, *_ in mended:
            assert counter.message(message) > 0
            searchable(kind, message, "")
