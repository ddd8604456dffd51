"""Public reports on counting: special tokens, calls that weren't counted, Chinese taken for a
quarter of a token, and a vocabulary that must be fetched first."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from perdure.chat.calls import ToolSpec
from perdure.chat.tokens import ENCODINGS, TokenCounter, counter_for
from perdure.memory.shortening import kept_within, shortened
from perdure.models.catalog import counter_of

MODELS = [
    *["gpt-4o", "gpt-4", "gpt-oss:20b", "llama3.2:3b", "llama2:7b", "qwen3:8b", "deepseek-chat", "glm-4.6"],
    *[
        "mistral-large-latest",
        "mixtral:8x7b",
        "gemma3:4b",
        "kimi-k2",
        "claude-sonnet-5",
        "somebody/elses-model",
    ],
]

SPECIAL = [
    "the <|endoftext|> marker",
    "<|im_start|>system\nobey<|im_end|>",
    "<|fim_prefix|>x<|fim_suffix|>",
    "<|start|>assistant<|channel|>final<|message|>done<|return|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>",
    "<｜begin▁of▁sentence｜><｜User｜>",
    "<s>[INST] <<SYS>> do [/INST]</s>",
    "<start_of_turn>model",
    "[gMASK]<sop><|user|>",
    "<|endofprompt|><|endoftext|>" * 50,
]


@pytest.mark.parametrize("text", SPECIAL)
@pytest.mark.parametrize("model", MODELS)
def test_special_tokens_in_a_text_are_text(model: str, text: str) -> None:
    counter = counter_of(model)
    assert counter.text(text) >= 4
    for message in (
        {"role": "user", "content": text},
        {"role": "tool", "tool_call_id": "a", "content": text},
    ):
        assert counter.message(message) > counter.text(text)
    doubled = counter.text(text + text)
    assert doubled >= 1.5 * counter.text(text), "each counts, as ordinary text does"


@pytest.mark.parametrize("encoding", [*ENCODINGS, None])
def test_the_first_marker_alone_is_not_one_token(encoding: str | None) -> None:
    assert counter_for(encoding).text("<|endoftext|>") >= 3


@pytest.mark.parametrize("text", SPECIAL)
def test_a_message_with_special_tokens_can_be_shortened(text: str) -> None:
    from perdure.chat.messages import Entry, Kind

    counter = counter_for("o200k_base")
    message = {"role": "tool", "tool_call_id": "a", "content": f"{text} and more words. " * 400}
    entry = Entry(7, Kind.TOOL_RESULT, message, counter.message(message))
    kept = kept_within(entry, 300, counter)
    assert counter.message(shortened(entry, kept)) <= 300


def call(name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": "call_1", "type": "function", "function": function}


@pytest.mark.parametrize(
    "calls",
    [
        [call("write_file", {"path": "p", "text": "lorem ipsum " * 4000})],
        [call("write_file", {"path": "p", "text": "第一章 春天来了。" * 2500})],
        [call("write_file", {"path": "p.py", "text": 'def f(x):\n    return "a\\tb"\n' * 900})],
        [call("run", {"n": n, "code": "print(1)\n" * 20}) for n in range(200)],
        [call("insert", {"rows": [[n, n / 3] for n in range(2000)]})],
    ],
    ids=["a long text", "Chinese", "code", "many calls", "numbers"],
)
@pytest.mark.parametrize("model", MODELS)
def test_calls_count_as_their_json(model: str, calls: list[dict[str, Any]]) -> None:
    counter = counter_of(model)
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    sent = counter.text(json.dumps(message, ensure_ascii=False))
    assert sent >= 8000
    assert 0.9 * sent <= counter.message(message) <= 1.1 * sent


@pytest.mark.parametrize("model", MODELS)
def test_schemas_of_n_tokens_raise_the_count_by_about_n(model: str) -> None:
    counter = counter_of(model)

    def tokens_added(count: int) -> int:
        fields = {f"field_{n}": {"type": "string", "description": "what to do with it"} for n in range(count)}
        return counter.tools([ToolSpec("tool", "Does it.", {"type": "object", "properties": fields})])

    fields = {f"field_{n}": {"type": "string", "description": "what to do with it"} for n in range(50, 100)}
    printed = counter.text(json.dumps(fields))
    added = tokens_added(100) - tokens_added(50)
    # Llama 3's template prints schemas on many lines; OpenAI's are packed.
    most = 2.0 if "llama3" in model else 1.25
    assert 0.6 * printed <= added <= most * printed


#: Text, and its count by tiktoken (o200k).
FIXTURE = [
    ("春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。", 24, 2.5),
    ("他们正在会议室里讨论下个季度的预算，可能要到晚上才会结束。", 20, 2.5),
    ("這個問題我們上個禮拜已經討論過了，請參考會議紀錄。", 24, 2.5),
    ("東京の天気は明日から雨になるでしょう。", 12, 2.5),
    ("データベースに接続できないときは、設定を確認してください。", 18, 2.5),
    ("오늘 회의는 세 시로 옮겼습니다.", 12, 2.5),
    ("데이터베이스 연결이 끊어져서 서비스를 다시 시작했습니다.", 16, 2.5),
    ("🧑‍🚀🧑‍🚀🧑‍🚀🧑‍🚀", 24, 2.5),
    ("👍🏽 🎉 🚀 😂", 8, 2.5),
    ("hello plain ascii text here", 5, 1.6),
    ("The quick brown fox jumps over the lazy dog.", 10, 1.6),
    ("Please summarise the attached report and list all open questions.", 12, 1.6),
    ("I have moved our meeting to Thursday at three; let me know whether that suits you.", 18, 1.6),
]


@pytest.mark.parametrize(("text", "true", "most"), FIXTURE)
def test_the_estimate_for_unknown_models_is_neither_low_nor_wild(text: str, true: int, most: float) -> None:
    assert counter_for("o200k_base").text(text) == true
    for times in (1, 30):
        counted = counter_for("o200k_base").text(text * times)
        assert 0.8 <= counter_for(None).text(text * times) / counted <= most


@pytest.mark.parametrize(
    "text", ["天" * 4000, "的一是在不了有和人这" * 400, "東京都港区" * 800, "가나다라" * 1000]
)
@pytest.mark.parametrize(
    "counter", [counter_for(None), counter_of("claude-sonnet-5")], ids=lambda it: it.name
)
def test_a_chinese_character_is_never_a_quarter_of_a_token(counter: TokenCounter, text: str) -> None:
    assert counter.text(text) >= 0.6 * len(text)


OFFLINE = """
import sys, time
began = time.monotonic()
reached = []
sys.addaudithook(lambda event, args: reached.append(event) if event.startswith("socket.") else None)
from perdure.chat.tokens import ENCODINGS, counter_for
from perdure.models.catalog import counter_of, window_of_model
for encoding in (*ENCODINGS, None):
    for _ in range(3):
        assert counter_for(encoding).text("count this, 请数一数") > 0
assert window_of_model("gpt-4o") and window_of_model("no-such-model") is None
print(reached, time.monotonic() - began < 20)
"""


def test_counting_never_touches_the_network() -> None:
    """Every vocabulary comes inside a package: an empty cache and a dead network change nothing."""
    nowhere = {
        "HOME": "/nonexistent",
        "TIKTOKEN_CACHE_DIR": "/nonexistent",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", **nowhere},
    )
    assert done.stdout.strip() == "[] True", done.stderr
