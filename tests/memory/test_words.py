"""A text's words are found again by whoever asks in like words, and its passages are the text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.memory.words import INNER, LONGEST, PASSAGE, STOP_WORDS, is_sign, passages_of, telling, words_of

texts = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from(
            [
                "getUserName",
                "src/app.py:12",
                "don’t",
                '"quoted"',
                "数据库",
                "ひらがな",
                "한국어",
                "C++",
                "\ud800",
                "\x00",
                "\n\n",
                "\t",
                " ",
                ". ",
                "。",
                "é",
                "x" * 90,
                "ไทย",
                "１２",
                "🙂",
                "👩🏽‍💻",
                "🇩🇪",
                "x\u200by",
                "Straße",
                "ΣΊΣΥΦΟΣ",
                "ᄒ",
                "ŉ",
            ]
        ),
        max_size=200,
    ).map("".join),
)


@given(texts)
def test_a_word_holds_letters_digits_and_what_stands_within_names_and_nothing_else(text: str) -> None:
    for word in words_of(text):
        assert 0 < len(word) <= LONGEST
        if is_sign(word):
            assert len(word) <= 2
            assert not any(each.isspace() or each.isalnum() or each in INNER for each in word)
            continue
        assert all(re.match(r"\w", each) or each in INNER for each in word), word
        assert not any(each.isspace() or unicodedata.category(each) in {"Cc", "Cs"} for each in word)
        assert not set(word) & set("\"'’“”`")


@given(texts)
def test_a_query_has_the_words_of_the_same_text_but_for_kana_and_syllables_in_a_run(text: str) -> None:
    said, asked = words_of(text), words_of(text, asking=True)
    assert set(asked) <= set(said)
    for word in set(said) - set(asked):
        assert re.fullmatch("[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7af]", word)


@given(texts, st.lists(st.tuples(st.integers(0, 400), st.sampled_from("\u200b\u200d\u2060\ufeff\u00ad"))))
def test_what_has_no_width_makes_no_difference_wherever_it_stands(
    text: str, inserted: list[tuple[int, str]]
) -> None:
    spread = text
    for at, character in inserted:
        spread = spread[:at] + character + spread[at:]
    assert words_of(spread) == words_of(text)


@given(texts)
def test_words_are_the_same_every_time_and_of_a_text_beside_another_one_too(text: str) -> None:
    assert words_of(text) == words_of(text)
    assert words_of(f"{text} \n {text}") == words_of(text) * 2


@given(texts, st.integers(0, 40))
def test_passages_are_the_text_in_order_and_none_is_long_or_empty(text: str, times: int) -> None:
    text *= times
    pieces = passages_of(text)
    assert "".join(text[start:end] for start, end in pieces) == text
    assert all(0 < end - start <= PASSAGE for start, end in pieces)
    assert all(end - start >= PASSAGE // 2 for start, end in pieces[:-1])


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("She was running the tests.", "run test"),
        ("def getUserName(self):", "user name"),
        ("def getUserName(self):", "getusername"),
        ("export MAX_RETRY_COUNT=5", "max retry count"),
        ("see src/app.py:12", "app.py"),
        ("open https://example.com/a?b=1", "example.com"),
        ("ValueError: bad port 8443", "value error 8443"),
        ("Python3.11", "python 3.11"),
        ("Caroline’s adoption", "caroline"),
        ("Café Müller", "cafe muller"),
        ("写进了数据库里", "数据库"),
        ("用pytest跑测试", "pytest 测试"),
        ("端口是８０８０", "8080"),
        ("東京タワー", "東京"),
        ("한국어를 배운다", "한국어"),
        ("한국어를 배운다", "어"),
        ("東京タワー", "タ"),
        ("ひらがな", "な"),
        ("船在港口", "港"),
        ("ſtraße", "strasse"),
        ("Hauptſtraße", "HAUPTSTRASSE"),
        ("ΟΔΥΣΣΕΎΣ", "οδυσσευς"),
        ("İstanbul", "istanbul"),
        ("ﬁle ①", "file 1"),
        ("well done 🙂", "🙂"),
        ("👍🏽", "👍"),
        ("👩‍💻 at work", "💻"),
        ("❤️", "❤"),
        ("from 🇩🇪 to 🇫🇷", "🇫🇷"),
        ("zero\u200bwidth", "zerowidth"),
        ("zerowidth", "zero\u200bwidth"),
        ("soft\u00adhyphen", "softhyphen"),
        ("می\u200cخواهم", "میخواهم"),
        ("\ufeffbegin", "begin"),
    ],
)
def test_what_is_asked_in_like_words_is_found(said: str, asked: str) -> None:
    held = set(words_of(said))
    for token in asked.split():
        found = [word for word in words_of(token) if word in held]
        assert len(found) * 2 > len(words_of(token)), (token, held)


def test_a_name_with_inner_structure_stands_whole_and_in_its_parts() -> None:
    assert {"src/app.py", "src", "app", "py"} <= set(words_of("in src/app.py, please"))
    assert {"c++", "c#"} <= set(words_of("C++ and C#"))


def test_chinese_words_of_two_characters_are_words() -> None:
    assert {"数据", "据库", "库"} <= set(words_of("数据库"))


def test_of_a_name_that_is_too_long_both_ends_are_kept() -> None:
    first, second = (words_of("a" * 90 + end)[0] for end in ("1", "2"))
    assert len(first) == LONGEST
    assert first != second


@pytest.mark.parametrize("between", ["\n\n", "\n", ". ", "。", " "])
def test_a_passage_ends_where_something_ends(between: str) -> None:
    first = "word" * 140 + between
    pieces = passages_of(first + "word" * 140)
    assert pieces[0] == (0, len(first))


def test_a_paragraph_ends_a_passage_rather_than_a_later_line_or_word() -> None:
    text = "a" * 500 + "\n\n" + "b" * 100 + "\n" + "c" * 100 + " " + "d" * 400
    assert passages_of(text)[0] == (0, 502)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("what is the port", ["port"]),
        ("the who", ["the", "who"]),
        ("你", ["你"]),
        ("where is it 🙂", ["🙂"]),
        ("which port 🙂", ["port"]),
        ("the the", ["the"]),
        ("?!", []),
    ],
)
def test_words_that_say_nothing_count_where_there_are_no_others(asked: str, told: list[str]) -> None:
    assert telling(words_of(asked, asking=True)) == told


def test_lines_and_bullets_are_no_words() -> None:
    assert words_of("┌──┐ ■ • → █▓ ⠋ \ufffd") == []


def test_words_that_say_nothing_are_as_they_are_segmented() -> None:
    asked = "what is the one that you were doing, and why don't they"
    assert set(words_of(asked)) - STOP_WORDS == {"one"}
    for word in STOP_WORDS:
        assert word in words_of(word), word
