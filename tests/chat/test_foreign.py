from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.histories import assert_paired, histories
from perdure.chat.foreign import History, read_history
from perdure.chat.messages import Kind
from perdure.chat.repair import repair
from perdure.errors import ImportUnreadable

TIME = "2026-01-02T03:04:05.678Z"
KEPT = "2026-01-02T03:04:05.678+00:00"
RECORDS = [
    {"seq": n, "role": "user" if n % 2 else "assistant", "content": f"said {n}: 你好"} for n in range(1, 10)
]


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def numbers(history: History) -> list[int]:
    return [int(message["content"].split()[1][:-1]) for message in history.messages]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def names(history: History) -> list[str]:
    return [each.say("en") for each in history.left_out]


# --- damage


def test_a_torn_last_line_is_named_and_kept_aside_even_inside_a_character() -> None:
    torn = lines(RECORDS[2]).rstrip()[:-4]
    assert torn.endswith(b"\xe5")
    history = read_history(lines(*RECORDS[:2]) + torn)
    assert numbers(history) == [1, 2]
    (damage,) = history.damages
    assert (damage.line, damage.raw) == (3, torn)
    assert "ends" in damage.say("en")
    assert "结束" in damage.say("zh")


def test_zeros_as_a_middle_line_are_one_damage() -> None:
    history = read_history(lines(RECORDS[0]) + bytes(200) + b"\n" + lines(RECORDS[1]))
    assert numbers(history) == [1, 2]
    assert [(damage.line, damage.raw) for damage in history.damages] == [(2, bytes(200))]


def test_a_record_behind_zeros_on_its_line_is_read() -> None:
    history = read_history(lines(RECORDS[0]) + bytes(200) + lines(RECORDS[1]))
    assert numbers(history) == [1, 2]
    assert [damage.line for damage in history.damages] == [2]


@pytest.mark.parametrize("data", [b"", b"\n \r\n", bytes(512), b"\xef\xbb\xbf"])
def test_a_file_with_nothing_in_it_is_an_error(data: bytes) -> None:
    with pytest.raises(ImportUnreadable, match=r"empty\.jsonl"):
        read_history(data, "empty.jsonl")


def test_a_bad_line_five_of_nine_costs_only_itself() -> None:
    nine = lines(*RECORDS).splitlines(keepends=True)
    nine[4] = nine[4][:25] + b"\n"
    history = read_history(b"".join(nine))
    assert numbers(history) == [1, 2, 3, 4, 6, 7, 8, 9]
    assert [(damage.line, damage.raw) for damage in history.damages] == [(5, nine[4].rstrip(b"\n"))]


def test_a_good_last_line_needs_no_line_break() -> None:
    history = read_history(lines(*RECORDS[:3]).rstrip(b"\n"))
    assert numbers(history) == [1, 2, 3]
    assert not history.damages


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_encodings_and_line_ends_of_other_systems_are_read(encoding: str, ending: str) -> None:
    text = lines(*RECORDS).decode().replace("\n", ending)
    history = read_history(text.encode(encoding))
    assert numbers(history) == list(range(1, 10))
    assert not history.damages


def test_a_utf16_file_cut_in_half_a_character_keeps_that_byte_too() -> None:
    data = lines(*RECORDS[:2]).decode().encode("utf-16-le")[:-5]
    history = read_history(data)
    assert numbers(history) == [1]
    (damage,) = history.damages
    assert damage.line == 2
    assert data.endswith(damage.raw)


def test_a_byte_that_is_no_text_costs_only_itself() -> None:
    broken = b'{"role":"user","content":"said 5: caf\xe9"}'
    history = read_history(lines(RECORDS[0]) + broken + b"\n" + lines(RECORDS[1]))
    assert numbers(history) == [1, 5, 2]
    assert [(damage.line, damage.raw) for damage in history.damages] == [(2, broken)]


def test_a_record_that_another_program_wrote_behind_a_torn_one_is_read() -> None:
    torn = lines(RECORDS[1]).rstrip()[:20]
    history = read_history(lines(RECORDS[0]) + torn + lines(RECORDS[2], RECORDS[3]))
    assert numbers(history) == [1, 3, 4]
    assert [damage.line for damage in history.damages] == [2]


def test_records_that_lost_the_line_break_between_them_are_read() -> None:
    history = read_history(lines(*RECORDS).replace(b"}\n{", b"}{"))
    assert numbers(history) == list(range(1, 10))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_torn_document_gives_what_stands_before(indent: int | None, wrapped: bool) -> None:
    document: Any = {"model": "m", "messages": RECORDS} if wrapped else RECORDS
    data = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    cut = data[: data.index(b"said 9") + 9]
    history = read_history(cut)
    assert numbers(history) == list(range(1, 9))
    (damage,) = history.damages
    assert cut.endswith(damage.raw)
    assert damage.raw.startswith(b"{")


def test_behind_a_broken_element_of_an_indented_document_reading_goes_on() -> None:
    data = json.dumps(RECORDS, indent=2, ensure_ascii=False).replace(
        '"content": "said 4', 'content": "said 4'
    )
    history = read_history(data.encode())
    assert numbers(history) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert [damage.line for damage in history.damages] == [17]


def test_a_first_line_that_is_torn_does_not_hide_the_others() -> None:
    torn = lines(RECORDS[0]).rstrip()[:-4] + b"\n"
    history = read_history(torn + lines({**RECORDS[1], "input": [1, 2]}, *RECORDS[2:]))
    assert numbers(history) == list(range(2, 10))
    assert [damage.line for damage in history.damages] == [1]


def test_deep_nesting_is_damage() -> None:
    for deep in (
        b"[" * 300 + b"]" * 300,
        b"[" * 1000 + b"]" * 1000,
        b"[" * 100_000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
    ):
        history = read_history(lines(RECORDS[0]) + deep + b"\n" + lines(RECORDS[1]))
        assert numbers(history) == [1, 2]
        assert [(damage.line, damage.say("en")) for damage in history.damages] == [(2, "nested too deeply")]


def test_what_json_does_not_define_is_no_traceback() -> None:
    odd = b'{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":%s}}}]}'
    for number in (b"NaN", b"-Infinity", b"1e999", b"9" * 5000):
        history = read_history(b'{"role":"user","role":"user","content":"twice"}\n' + odd % number + b"\n")
        mended, _ = history.mended()
        arguments = mended[1][1]["tool_calls"][0]["function"]["arguments"]
        kept = json.loads(arguments, parse_constant=pytest.fail)
        assert kept == {"x": number.decode() if number.isdigit() else None}


scraps = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"\0", b"\xff\xfe", b"\xe4\xbd", b"null", b"NaN"),
        *(lines(RECORDS[0]), b'{"role":', b'"messages":[', b'{"type":"user","message":{"role":"user"}}\n'),
        *(
            b'{"perdure":1,"session":{}}\n',
            b'{"entry":1,"message":{}}\n',
            b'{"event":"turn.undone","after":0}\n',
        ),
    ]
)


@given(st.lists(scraps | st.binary(max_size=8), max_size=30))
def test_no_bytes_raise_anything_but_our_own_error(parts: list[bytes]) -> None:
    try:
        history = read_history(b"".join(parts))
    except ImportUnreadable:
        return
    mended, _ = history.mended()
    assert repair([message for _, message, *_ in mended])[1] == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
field_names = st.sampled_from(
    [
        *("type", "role", "content", "message", "messages", "payload", "tool_calls", "id", "call_id", "uuid"),
        *(
            "parentUuid",
            "parentId",
            "timestamp",
            "entry",
            "event",
            "after",
            "body",
            "kind",
            "time",
            "perdure",
        ),
        *("session", "settings", "input", "output", "arguments", "name", "text", "source", "num_turns"),
    ]
)
words_of_forms = st.sampled_from(
    [
        *("user", "assistant", "tool", "system", "message", "session", "response_item", "event_msg"),
        *("function_call", "function_call_output", "tool_use", "tool_result", "text", "image", "toolResult"),
        *("turn.undone", "thread_rolled_back", "user_message", "bashExecution", "reasoning", "a", "b"),
    ]
)
odd_records = st.recursive(
    words_of_forms | json_values,
    lambda inner: st.dictionaries(field_names, inner, max_size=6) | st.lists(inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(odd_records, min_size=1, max_size=6))
def test_records_of_any_shape_raise_nothing_but_our_own_error(records: list[Any]) -> None:
    try:
        history = read_history(lines(*records) if len(records) > 1 else json.dumps(records[0]).encode())
    except ImportUnreadable:
        return
    mended, _ = history.mended()
    assert_paired([message for _, message, *_ in mended])


# --- chat messages


@given(histories, st.sampled_from(["array", "object", "lines", "indented"]))
def test_chat_messages_come_back_as_they_were(messages: list[dict[str, Any]], form: str) -> None:
    data = {
        "array": json.dumps(messages).encode(),
        "object": json.dumps({"model": "m", "messages": messages}).encode(),
        "lines": lines(*messages),
        "indented": json.dumps(messages, indent=1).encode(),
    }[form]
    history = read_history(data)
    assert history.form == "chat"
    assert history.messages == messages
    assert not history.damages
    assert not history.left_out


def test_only_what_a_chat_message_may_carry_is_taken_over() -> None:
    history = read_history(lines({"seq": 1, "role": "user", "content": "hi", "timestamp": 1767323045.678}))
    assert history.messages == [user("hi")]
    assert history.times == [KEPT]


def test_the_first_system_prompt_is_a_setting_and_a_later_one_a_notice() -> None:
    told = {"role": "system", "content": "Be brief."}
    history = read_history(lines(told, user("a"), {"role": "developer", "content": "Be long."}))
    assert history.settings == {"system": "Be brief."}
    assert history.messages == [user("a"), user("Be long.")]
    assert history.kinds == [None, Kind.NOTICE]


def test_conversations_on_lines_are_all_read_in_order() -> None:
    told = {"role": "system", "content": "Be brief."}
    history = read_history(
        lines({"messages": [told, user("a")]}, {"messages": [told, user("b")], "weight": 1})
    )
    assert history.messages == [user("a"), user("b")]
    assert history.settings == {"system": "Be brief."}


def test_a_log_whose_lines_repeat_what_was_said_gives_the_conversation_once() -> None:
    told = {"role": "system", "content": "Be brief."}
    said = [told, user("a"), {"role": "assistant", "content": "b"}, user("c")]
    history = read_history(lines({"messages": said[:2]}, {"messages": said}))
    assert history.messages == said[1:]


def test_what_is_no_message_is_named() -> None:
    history = read_history(lines(user("a"), {"note": 1}, [1], user("b")))
    assert history.messages == [user("a"), user("b")]
    assert [(damage.line, damage.raw) for damage in history.damages] == [(2, b'{"note": 1}'), (3, b"1")]
    with pytest.raises(ImportUnreadable, match="no message"):
        read_history(b'{"name": "package", "version": 1}')


def test_a_result_whose_call_is_missing_is_repaired_and_its_text_stays() -> None:
    history = read_history(lines(user("a"), {"role": "tool", "tool_call_id": "lost", "content": "shown"}))
    mended, repairs = history.mended()
    assert [kind for kind, *_ in mended] == [Kind.USER, Kind.TOOL_CALL, Kind.TOOL_RESULT]
    assert mended[-1][1]["content"] == "shown"
    assert len(repairs) == 1


def test_a_repaired_message_keeps_its_kind_and_time_and_a_stand_in_has_that_of_its_neighbour() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": ""}}
    records = [
        {"entry": 1, "kind": "feedback", "time": KEPT, "message": user("again")},
        {"entry": 2, "kind": "user", "time": KEPT, "message": {"role": "assistant", "tool_calls": [call]}},
    ]
    mended, _ = read_history(lines(*records)).mended()
    assert [(kind, time) for kind, _, time, _ in mended] == [
        (Kind.FEEDBACK, KEPT),
        (Kind.TOOL_CALL, KEPT),
        (Kind.TOOL_RESULT, KEPT),
    ]
    assert all("place" not in name for _, message, *_ in mended for name in message)


# --- other wire forms


def test_anthropic_blocks_become_calls_results_and_pictures() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    conversation = {
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "yes"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"x": "é"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "text", "text": "r"}, picture],
                    },
                ],
            },
        ],
    }
    history = read_history(json.dumps(conversation).encode())
    assert history.form == "anthropic"
    assert history.settings == {"system": "Be kind."}
    asked, called, result, more = history.messages
    assert asked["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert called["content"] == "yes"
    assert called["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": "é"}'}
    assert result == {"role": "tool", "tool_call_id": "t", "content": "r\n[image]"}
    assert more == user("and")
    assert history.mended()[1] == []
    assert names(history) == ["1 piece of the model's reasoning"]


def test_responses_items_become_messages_and_calls_made_at_once_one_message() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I go"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "web_search_call", "status": "completed"},
    ]
    for data in (lines(*items), json.dumps(items).encode(), json.dumps({"input": items}).encode()):
        history = read_history(data)
        assert history.form == "responses"
        assert [message["role"] for message in history.messages] == ["user", "assistant", "tool", "tool"]
        assert [call["id"] for call in history.messages[1]["tool_calls"]] == ["a", "b"]
        assert history.messages[1]["content"] == "I go"
        assert history.messages[3]["content"] == "two"
        assert history.mended()[1] == []


def test_a_call_behind_a_message_with_broken_calls_stands_by_itself() -> None:
    broken = {"role": "assistant", "content": "x", "tool_calls": "none"}
    history = read_history(lines(broken, {"type": "function_call", "call_id": "a", "name": "f"}))
    assert history.messages[1]["tool_calls"][0]["id"] == "a"
    assert history.messages[0] == broken


# --- other agents


def codex(type: str, /, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME, "type": type, "payload": payload}


def codex_said(role: str, text: str) -> dict[str, Any]:
    type = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", type="message", role=role, content=[{"type": type, "text": text}])


def typed_in_codex(text: str) -> list[dict[str, Any]]:
    return [codex_said("user", text), codex("event_msg", type="user_message", message=text)]


def test_a_codex_rollout_is_read_and_what_the_person_did_not_type_is_a_notice() -> None:
    history = read_history(
        lines(
            codex("session_meta", id="x", cwd="/w"),
            codex_said("developer", "You may not."),
            codex_said("user", "<environment_context>"),
            *typed_in_codex("do it"),
            codex("response_item", type="function_call", name="shell", arguments="{}", call_id="c"),
            codex("response_item", type="function_call_output", call_id="c", output="done"),
            codex("response_item", type="custom_tool_call", name="apply_patch", input="***", call_id="d"),
            codex("response_item", type="custom_tool_call_output", call_id="d", output="ok"),
            codex("compacted", message="a summary"),
            codex_said("assistant", "It is done."),
        )
    )
    mended, repairs = history.mended()
    assert history.form == "codex"
    assert not repairs
    assert [kind for kind, *_ in mended] == [
        *(Kind.NOTICE, Kind.USER, Kind.TOOL_CALL, Kind.TOOL_RESULT),
        *(Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ASSISTANT),
    ]
    assert json.loads(mended[4][1]["tool_calls"][0]["function"]["arguments"]) == {"input": "***"}
    assert {time for _, _, time, _ in mended} == {KEPT}
    assert "You may not." not in str(history.messages)
    assert "a summary" not in str(history.messages)


def test_a_turn_that_codex_rolled_back_stays_so() -> None:
    back = codex("event_msg", type="thread_rolled_back", num_turns=1)
    history = read_history(
        lines(
            *typed_in_codex("one"),
            codex_said("assistant", "1"),
            *typed_in_codex("wrong"),
            codex_said("assistant", "2"),
            back,
            *typed_in_codex("two"),
        )
    )
    assert [message["content"] for message in history.messages] == ["one", "1", "two"]


def test_a_codex_file_of_the_first_form_is_read() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    history = read_history(
        lines({"id": "x", "timestamp": TIME, "instructions": None}, {"record_type": "state"}, item)
    )
    assert history.messages == [user("hi")]
    assert not history.damages


def claude(id: str, parent: str | None, type: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": type, "content": content, "id": fields.pop("answer", None)}
    return {"uuid": id, "parentUuid": parent, "type": type, "message": message, "timestamp": TIME, **fields}


def block(type: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"type": type, **fields}]


CLAUDE = [
    {"type": "summary", "summary": "a title", "leafUuid": "x"},
    {"type": "file-history-snapshot", "snapshot": {}},
    claude("m", None, "user", "a caveat", isMeta=True),
    claude("u1", "m", "user", "fix it"),
    claude("a1", "u1", "assistant", block("thinking", thinking="hm"), answer="one"),
    claude("a2", "a1", "assistant", block("text", text="I look"), answer="one"),
    claude("a3", "a2", "assistant", block("tool_use", id="t1", name="Read", input={}), answer="one"),
    claude("a4", "a3", "assistant", block("tool_use", id="t2", name="Read", input={}), answer="one"),
    # Results name the line of their call as their parent, so that only one is on the way to the last line.
    claude("r1", "a3", "user", block("tool_result", tool_use_id="t1", content="X")),
    claude("r2", "a4", "user", block("tool_result", tool_use_id="t2", content="Y")),
    claude("s", None, "user", "a sub-agent's task", isSidechain=True),
    claude("a5", "r2", "assistant", block("text", text="fixed"), answer="two"),
    claude("u2", "a5", "user", "a bad idea"),
    {"type": "attachment", "uuid": "at", "parentUuid": "u2"},
    claude("a6", "at", "assistant", block("text", text="a bad answer"), answer="three"),
    claude("u3", "a5", "user", block("text", text="a good idea")),
    claude("c", None, "user", "continued from", isCompactSummary=True),
    claude("a7", "u3", "assistant", block("text", text="a good answer"), answer="four"),
]


def test_a_claude_code_session_gives_the_branch_that_stands() -> None:
    history = read_history(lines(*CLAUDE))
    assert history.form == "claude-code"
    assert [message["content"] for message in history.messages] == [
        *("fix it", "I look", "X", "Y", "fixed", "a good idea", "a good answer")
    ]
    assert [call["id"] for call in history.messages[1]["tool_calls"]] == ["t1", "t2"]
    assert history.mended()[1] == []
    assert set(history.times) == {KEPT}
    assert sorted(names(history)) == [
        "1 message of sub-agents",
        "1 message that the other program wrote for itself",
        "1 piece of the model's reasoning",
        "1 summary of what is in the file anyway",
        "2 messages on branches that were given up",
        "3 records that hold no message",
    ]
    assert "3 条不含消息的记录" in [each.say("zh") for each in history.left_out]


def test_a_damaged_line_of_a_claude_code_session_gives_up_no_branch() -> None:
    data = lines(*CLAUDE[:4]) + b'{"parentUuid": "u1", "uu\n' + lines(*CLAUDE[5:])
    history = read_history(data)
    assert [message["content"] for message in history.messages][0:2] == ["fix it", "I look"]
    assert [damage.line for damage in history.damages] == [5]


def test_a_sub_agents_own_file_is_read() -> None:
    history = read_history(lines(claude("s", None, "user", "a task", isSidechain=True)))
    assert history.messages == [user("a task")]


def pi(id: str, parent: str | None, type: str = "message", **fields: Any) -> dict[str, Any]:
    return {"type": type, "id": id, "parentId": parent, "timestamp": TIME, **fields}


PI = [
    {"type": "session", "version": 3, "id": "s", "timestamp": TIME, "cwd": "/w"},
    pi("1", None, "model_change", provider="p", modelId="m"),
    pi("2", "1", message={"role": "user", "content": "hello"}),
    pi(
        "3",
        "2",
        message={
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "ls"}},
            ],
        },
    ),
    pi(
        "4",
        "3",
        message={"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": "files"}]},
    ),
    pi("5", "4", message={"role": "user", "content": "given up"}),
    pi("6", "4", "compaction", summary="a summary", firstKeptEntryId="2"),
    pi("7", "6", message={"role": "bashExecution", "command": "pwd", "output": "/w", "exitCode": 1}),
    pi("8", "7", "custom_message", customType="x", content="from an extension"),
    pi(
        "9",
        "8",
        message={"role": "user", "content": [{"type": "image", "data": "AA", "mimeType": "image/png"}]},
    ),
]


def test_a_pi_session_gives_the_branch_of_its_newest_entry() -> None:
    mended, repairs = (history := read_history(lines(*PI))).mended()
    assert history.form == "pi"
    assert not repairs
    assert [kind for kind, *_ in mended] == [
        *(Kind.USER, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.TOOL_CALL, Kind.TOOL_RESULT),
        *(Kind.NOTICE, Kind.USER),
    ]
    assert mended[2][1]["content"] == "files"
    assert mended[4][1]["content"] == "/w\n[exit code 1]"
    assert "given up" not in str(history.messages)
    assert "a summary" not in str(history.messages)


def test_an_old_pi_session_without_ids_and_one_with_a_damaged_line_are_read_whole() -> None:
    old = [
        {name: value for name, value in each.items() if name not in ("id", "parentId")} for each in PI[1:5]
    ]
    assert len(read_history(lines(PI[0], *old)).messages) == 3
    damaged = lines(*PI[:3]) + b'{"type": "mess\n' + lines(*PI[4:5])
    assert [message["role"] for message in read_history(damaged).messages] == ["user", "tool"]


def test_what_stands_behind_a_list_is_read_too() -> None:
    first, second = [user("a"), user("b")], [user("c")]
    for ending in (lines(second), lines(*second), json.dumps(second, indent=1).encode()):
        for beginning in (lines(first), json.dumps(first, indent=1).encode()):
            assert read_history(beginning + ending).messages == first + second
            assert read_history(beginning + b"\n\n" + ending).messages == first + second
    torn = read_history(lines(first) + b"and so on")
    assert torn.messages == first
    assert [damage.raw for damage in torn.damages] == [b"and so on"]
    inside = (
        b'{"messages": [{"role": "user", "content": "a"}, {], "more": [{"role": "user", "content": "b"}]}'
    )
    assert read_history(inside).messages == [user("a")]


# --- several conversations in one file

CODEX = [
    *(codex("session_meta", id="one"), *typed_in_codex("hello")),
    codex_said("assistant", "hi"),
]


def another(records: list[Any]) -> list[Any]:
    """The records of a session, with all their ids those of another one."""
    names = ("id", "uuid", "parentUuid", "parentId", "sessionId")

    def changed(record: dict[str, Any]) -> dict[str, Any]:
        ids = {name: f"other {record[name]}" for name in names if record.get(name)}
        objects = {
            name: record[name] for name in ("payload", "message") if isinstance(record.get(name), dict)
        }
        inner = {name: changed(value) for name, value in objects.items()}
        return {**record, **ids, **inner}

    return [changed(record) for record in records]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([{"messages": [user("a"), user("b")]}], [{"messages": [user("c")]}]),
        ([[user("a")]], [[user("b")]]),
        ([[[user("a")], [user("b")]]], []),
        (CODEX, another(CODEX)),
        (
            [{**record, "sessionId": "one"} for record in CLAUDE],
            another([{**record, "sessionId": "one"} for record in CLAUDE]),
        ),
        (PI, another(PI)),
    ],
    ids=["objects", "lists", "a list of lists", "codex", "claude code", "pi"],
)
def test_conversations_one_behind_the_other_are_counted(first: list[Any], second: list[Any]) -> None:
    both = read_history(lines(*first, *second))
    assert both.conversations == 2
    apart = [read_history(lines(*each)) for each in (first, second) if each]
    assert len(both.messages) == sum(len(each.messages) for each in apart)
    if second:
        assert [each.conversations for each in apart] == [1, 1]


@pytest.mark.parametrize(
    "records",
    [
        [user("a"), user("b")],
        [[user("a"), user("b")]],
        [{"messages": [user("a")]}, {"messages": [user("a"), user("b")]}],
        [{"messages": [user("a")]}, {"messages": []}],
    ],
    ids=["messages", "a list", "a log that repeats", "an empty one"],
)
def test_one_conversation_is_one(records: list[Any]) -> None:
    assert read_history(lines(*records)).conversations == 1


def test_what_was_taken_back_in_one_export_stands_in_the_next() -> None:
    def entry(number: int, text: str) -> dict[str, Any]:
        return {"entry": number, "kind": "user", "time": KEPT, "message": user(text)}

    undone = {"event": "turn.undone", "after": 1, "time": KEPT, "body": {"first": 1, "last": 1}}
    header = {"perdure": 1, "session": "s", "settings": {}}
    history = read_history(lines(header, entry(1, "a"), undone, header, entry(1, "b")))
    assert [message["content"] for message in history.messages] == ["b"]
    assert (history.conversations, names(history)) == (2, ["1 message of turns that were taken back"])
