from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat.counted import COUNTS, TEXTS
from perdure.chat.encodings import ENCODINGS, tokens_in
from perdure.chat.estimate import estimated_tokens

#: Those that a model of unknown make may well have. (Older, smaller ones are known by name.)
CURRENT = [name for name in ENCODINGS if name not in {"llama2", "codellama", "mistral_v3"}]
#: What tells much about Latin letters says little about these.
LANGUAGES_OF_LATIN = {"english", "english talk", "hello", "german", "french", "spanish", "dutch", "italian"}
CJK_AND_EMOJI = {
    kind for kind in TEXTS if kind.split()[0].strip(",") in {"chinese", "japanese", "korean"}
} | {
    "emoji",
    "emoji, joined",
    "astronauts",
    "emoji and words",
    "rare chinese",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_estimate_is_not_below_any_current_tokenizer(kind: str) -> None:
    estimate = estimated_tokens(TEXTS[kind])
    counts = {encoding: tokens_in(TEXTS[kind], encoding) for encoding in CURRENT}
    assert {encoding: count for encoding, count in counts.items() if estimate < 0.96 * count} == {}


@pytest.mark.parametrize("kind", sorted(LANGUAGES_OF_LATIN))
def test_the_estimate_of_a_european_language_is_at_most_1_6_times_too_high(kind: str) -> None:
    assert estimated_tokens(TEXTS[kind]) <= 1.6 * COUNTS[kind]["o200k_base"]


@pytest.mark.parametrize("kind", sorted(CJK_AND_EMOJI))
def test_the_estimate_of_chinese_japanese_korean_and_emoji_is_at_most_2_5_times_too_high(kind: str) -> None:
    assert estimated_tokens(TEXTS[kind]) <= 2.5 * COUNTS[kind]["o200k_base"]


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=300))
def test_a_chinese_character_is_never_half_a_token(text: str) -> None:
    assert estimated_tokens(text) >= 0.6 * len(text)


#: Pieces of real text: lines, words with the blank before them, or pairs of characters.
PIECES = sorted(
    {
        piece
        for text in TEXTS.values()
        for line in text.splitlines(keepends=True)
        for piece in [line, *(f" {word}" for word in line.split()), line[:2], line[-3:]]
        if piece.strip()
    }
)


@given(st.lists(st.sampled_from(PIECES), min_size=12, max_size=60))
def test_the_estimate_of_mixed_text_is_not_below_any_current_tokenizer(pieces: list[str]) -> None:
    text = "".join(pieces)
    estimate = estimated_tokens(text)
    for encoding in CURRENT:
        assert estimate >= 0.96 * tokens_in(text, encoding), encoding


@settings(deadline=None)
@given(st.text(st.characters(codec=None), max_size=100), st.text(st.characters(codec=None), max_size=100))
def test_the_estimate_never_fails_and_adds_up(first: str, second: str) -> None:
    together, apart = estimated_tokens(first + second), estimated_tokens(first) + estimated_tokens(second)
    assert together <= apart + 12
    assert (together == 0) == (first + second == "")
