"""Generated histories: valid ones, of every shape a session can take."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from perdure.chat.messages import Message

words = st.text(alphabet="abc déf字[<\n🙂", max_size=40)
long_words = st.integers(0, 900).map(lambda n: ("word " * 200)[:n]) | words


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


@st.composite
def tool_rounds(draw: st.DrawFn) -> list[Message]:
    """One message with calls, and their results."""
    tag = draw(st.integers(0, 10**9))
    count = draw(st.integers(1, 4))
    calls, results = [], []
    for nth in range(count):
        id = f"c{tag}-{nth}"
        arguments = json.dumps({"text": draw(long_words)}, ensure_ascii=False)
        calls.append({"id": id, "type": "function", "function": {"name": "tool", "arguments": arguments}})
        results.append({"role": "tool", "tool_call_id": id, "content": draw(long_words)})
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A request, rounds of tools, and perhaps an answer."""
    messages = [user(draw(long_words))]
    for rounds in draw(st.lists(tool_rounds(), max_size=4)):
        messages += rounds
    if draw(st.booleans()):
        messages.append(assistant(draw(long_words)))
    return messages


histories = st.lists(turns(), min_size=1, max_size=8).map(lambda every: [m for turn in every for m in turn])


def assert_paired(messages: list[Message]) -> None:
    """Every call is answered at once, by exactly one result for each id, in order."""
    expected: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert expected, "a result stands without its call"
            assert message["tool_call_id"] == expected.pop(0)
        else:
            assert not expected, "a call stands without its results"
            expected = [call["id"] for call in message.get("tool_calls") or ()]
    assert not expected, "a call stands without its results"
