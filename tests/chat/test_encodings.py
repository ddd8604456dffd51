from __future__ import annotations

import threading
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from splintr import Tokenizer

from chat.counted import COUNTS, TEXTS
from perdure.chat.encodings import ENCODINGS, most_tokens, sendable, tokens_in

#: Every code point, lone surrogates among them.
ANY_TEXT = st.text(st.characters(codec=None), max_size=200)
#: The first example of a test loads vocabularies, which takes a moment.
unhurried = settings(deadline=None)


@pytest.mark.parametrize("encoding", sorted({encoding for counts in COUNTS.values() for encoding in counts}))
def test_an_encoding_counts_as_its_reference_implementation_does(encoding: str) -> None:
    counts = {kind: counts[encoding] for kind, counts in COUNTS.items() if encoding in counts}
    assert len(counts) > 80
    assert {kind: tokens_in(TEXTS[kind], encoding) for kind in counts} == counts


TOKENIZERS = {
    encoding: Tokenizer.from_pretrained(encoding)
    for encoding in ("o200k_base", "llama3", "mistral_v1", "gemma3")
}


@unhurried
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_a_count_is_that_of_the_tokenizer_itself(text: str) -> None:
    for encoding, tokenizer in TOKENIZERS.items():
        assert tokens_in(text, encoding) == len(tokenizer.encode_ordinary(text))


@unhurried
@given(ANY_TEXT)
def test_no_encoding_raises_or_exceeds_the_proven_bound(text: str) -> None:
    bound = most_tokens(text)
    for encoding in ENCODINGS:
        assert (0 < tokens_in(text, encoding) <= bound) if text else tokens_in(text, encoding) == bound == 0


@unhurried
@given(ANY_TEXT, ANY_TEXT)
def test_two_texts_together_have_at_most_the_tokens_of_both_and_a_little(first: str, second: str) -> None:
    for encoding in ENCODINGS:
        apart = tokens_in(first, encoding) + tokens_in(second, encoding)
        assert tokens_in(first + second, encoding) <= apart + 12


@unhurried
@given(ANY_TEXT)
def test_what_is_sendable_can_be_sent_and_is_changed_only_where_it_must(text: str) -> None:
    sent = sendable(text)
    sent.encode()
    assert sendable(sent) == sent
    assert sent == text or any("\ud800" <= character <= "\udfff" for character in text)


def test_a_lone_surrogate_counts_as_the_character_it_is_sent_as() -> None:
    assert sendable("a\ud800b \ud83d\ude00") == "a\ufffdb 😀"
    for encoding in ENCODINGS:
        assert tokens_in("a\udfffb", encoding) == tokens_in("a\ufffdb", encoding)


SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|fim_prefix|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|begin_of_text|>",
    "<|channel|>",
    "<|message|>",
    "<|user|>",
    "<｜User｜>",
    "<｜end▁of▁sentence｜>",
    "<|im_user|>",
    "<start_of_turn>",
    "[gMASK]",
    "[INST]",
    "[TOOL_CALLS]",
    "</s>",
    "<s>",
]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("special", SPECIAL)
def test_a_special_token_in_a_text_is_text(encoding: str, special: str) -> None:
    assert tokens_in(special, encoding) >= 2
    assert tokens_in(f"the {special} marker", encoding) >= 4


HARD = {
    "a million spaces": " " * 1_000_000,
    "a million letters": "a" * 1_000_000,
    "lines": "\n" * 300_000,
    "dashes": "-" * 300_000,
    "NUL": "\0" * 100_000,
    "one Chinese character": "天" * 100_000,
    "astronauts": "🧑‍🚀" * 30_000,
    "combining marks": "e" + "\u0301" * 100_000,
    "spaces and a letter": " " * 300_000 + "x",
    "letters without a word": "qzjxkvbwpy" * 30_000,
}


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base", "llama3", "qwen3", "mistral_v1", "gemma3"])
@pytest.mark.parametrize("text", HARD.values(), ids=HARD)
def test_no_text_is_too_hard(encoding: str, text: str) -> None:
    assert 0 < tokens_in(text, encoding) <= most_tokens(text)


@pytest.mark.parametrize("text", ["\u0958\u0932\u092e", "e\u0301" * 9, "\U0001d160" * 5, "\ufb1d", "한국어"])
def test_a_tokenizer_that_composes_first_counts_the_longer_of_both_forms(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    assert tokens_in(text, "qwen3") >= tokens_in(composed, "qwen3")
    assert tokens_in(text, "qwen3") <= most_tokens(text)


def test_many_threads_count_the_same() -> None:
    right = {kind: tokens_in(text, "glm4") for kind, text in TEXTS.items()}
    wrong: list[str] = []

    def count() -> None:
        wrong.extend(kind for kind, text in TEXTS.items() if tokens_in(text, "glm4") != right[kind])

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
