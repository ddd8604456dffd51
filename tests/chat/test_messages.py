from __future__ import annotations

from hypothesis import given

from memory.counting import entries
from memory.histories import histories
from perdure.chat.language import language_of
from perdure.chat.messages import Kind, Message, blocks, kind_of, text_of


@given(histories)
def test_blocks_hold_every_entry_once_and_a_call_with_all_its_results(messages: list[Message]) -> None:
    every = list(blocks(entries(*messages)))
    assert [entry.message for block in every for entry in block.entries] == messages
    for block in every:
        assert (block.kind is Kind.TOOL_CALL) == (len(block.entries) > 1)
        assert block.tokens == sum(entry.tokens for entry in block.entries)
        assert (block.first, block.last) == (block.entries[0].seq, block.entries[-1].seq)


def test_blocks_of_nothing_are_none() -> None:
    assert list(blocks([])) == []


def test_a_kind_comes_from_role_and_fields_and_never_from_the_text() -> None:
    assert kind_of({"role": "user", "content": "[notice] rename the module"}) is Kind.USER
    assert kind_of({"role": "assistant", "content": "", "tool_calls": [{}]}) is Kind.TOOL_CALL
    assert kind_of({"role": "assistant", "content": "x"}) is Kind.ASSISTANT
    assert kind_of({"role": "tool", "content": "x"}) is Kind.TOOL_RESULT


def test_the_text_of_a_message_is_its_content_or_its_text_parts() -> None:
    assert text_of({"role": "user", "content": "x"}) == "x"
    assert text_of({"role": "assistant", "content": None}) == ""
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "b"},
    ]
    assert text_of({"role": "user", "content": parts}) == "a\nb"


def test_the_language_is_that_of_most_words() -> None:
    for text in (
        "读取文件 notes/todo.txt",
        "请用 calculator 计算 23*47+11",
        "你好",
        "把 README.md 翻译成 English",
    ):
        assert language_of(text) == "zh", text
    for text in (
        "hello",
        "",
        "123",
        "What does 你好 mean in this sentence?",
        "東京の天気は明日から雨になるでしょう",
        "오늘",
    ):
        assert language_of(text) == "en", text
