from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.tools.output import readable
from perdure.tools.watcher import Kept

LIMIT = 1000


def shown(output: bytes, limit: int = LIMIT) -> str:
    return readable(output, b"", len(output), limit)


@given(st.binary(max_size=3000), st.binary(max_size=3000), st.integers(0, 10**12), st.integers(100, 4000))
def test_whatever_bytes_come_the_text_can_be_sent_and_fits(
    head: bytes, tail: bytes, hidden: int, limit: int
) -> None:
    text = readable(head, tail, len(head) + len(tail) + hidden, limit)
    assert len(text) <= limit
    assert json.loads(json.dumps(text)) == text
    text.encode()
    assert not any(ord(each) < 32 and each not in "\n\t" for each in text)


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=300)
)
def test_ordinary_text_comes_through_unchanged(text: str) -> None:
    assert shown(text.encode()) == text


@given(st.text(alphabet="aß字😀\n", min_size=400, max_size=4000), st.integers(0, 3), st.integers(150, 600))
def test_a_cut_never_goes_through_a_character(text: str, shift: int, limit: int) -> None:
    output = text.encode()
    middle = len(output) // 2 + shift
    said = readable(output[: middle - 200], output[middle:], len(output), limit)
    assert "�" not in said


def test_a_long_output_keeps_its_head_and_its_tail_and_says_how_long_it_was() -> None:
    output = b"".join(b"line %d\n" % number for number in range(10_000))
    text = shown(output)
    assert text.startswith("line 0\n")
    assert text.endswith("\nline 9999\n")
    assert f"{len(output)} bytes" in text
    kept = [line for line in text.splitlines() if not line.startswith("[")]
    assert set(kept) <= set(output.decode().splitlines()), "cut at line ends"


@pytest.mark.parametrize(
    "output, text",
    [
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b[38;2;1;2;3mtrue\x1b[m colour", "true colour"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPdevice\x1b\\x", "x"),
        (b"\x1b(B\x1b=\x1b>x\x1b7\x1b8", "x"),
        (b"\x1b[?25l\x1b[2J\x1b[1;1Hx\x1b[K", "x"),
        (b"ends in \x1b", "ends in "),
        (b"\x1b]never ended\nnext line", "\nnext line"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"10%\r20%\r100%\n", "10%\n20%\n100%\n"),
        (b"a\0b\x07\x7f", "a␀b␇␡"),
        (b"caf\xe9", "caf�"),
        ("字".encode() + b"\xe5\xad", "字�"),
        (b"\xed\xa0\x80", "���"),
        ("\u202e\u2028\ufeff".encode(), "\u202e\u2028\ufeff"),
    ],
)
def test_what_a_terminal_would_obey_is_taken_out_and_what_it_could_not_show_is_marked(
    output: bytes, text: str
) -> None:
    assert shown(output) == text


@pytest.mark.parametrize("output", [bytes(range(256)) * 8, "汉字很多".encode("gb18030") * 300, b"\0" * 1000])
def test_data_that_is_no_text_is_described_instead_of_shown(output: bytes) -> None:
    text = shown(output)
    assert f"binary, {len(output)} bytes" in text
    assert output[:4].hex(" ") in text
    assert len(text) < 400


def test_a_few_bad_bytes_in_a_long_text_do_not_hide_it() -> None:
    assert "needle" in shown(b"ordinary text " * 20 + b"\xff\xfe\0 needle " + b"more text " * 30)


@pytest.mark.parametrize(
    "output", [b"\x1b]" * 20_000, b"\x1b[" * 20_000, b"\x1b" * 20_000, b"\x1bP\x1b" * 20_000]
)
@pytest.mark.timeout(20)
def test_hostile_escapes_take_no_longer_than_others(output: bytes) -> None:
    shown(output)


@given(st.lists(st.binary(max_size=90_000), max_size=12))
def test_what_is_kept_is_the_beginning_and_the_end(pieces: list[bytes]) -> None:
    kept, whole = Kept(), b"".join(pieces)
    for piece in pieces:
        kept.add(piece)
    assert kept.total == len(whole)
    assert whole.startswith(kept.head)
    assert whole.endswith(kept.tail)
    assert len(kept.head) + len(kept.tail) == len(whole) or len(kept.tail) == 128 * 1024
