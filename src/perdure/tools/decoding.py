"""Bytes of a file to text: which encoding, and how sure that is."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

#: Bytes that are looked at to tell an encoding.
SAMPLE = 262_144

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\x08\x1b")


@dataclass(frozen=True, slots=True)
class Encoding:
    """A codec's name, and what to say of it: nothing where it is plain UTF-8."""

    codec: str
    note: str = ""


def encoding_of(sample: bytes) -> Encoding | None:
    """The encoding of a text that begins with ``sample``; None where it is binary.

    A byte order mark decides; then UTF-8, as nothing else looks like it; then UTF-16 by its NULs;
    then GB18030 where that gives common Chinese; the rest is charset-normalizer's guess.
    """
    for mark, codec in _MARKS:
        if sample.startswith(mark):
            return Encoding(codec, codec.removesuffix("-sig").upper() + " with a byte order mark")
    if (wide := _wide(sample)) or b"\x00" in sample:
        return wide
    good, bad = _utf8(sample)
    if not bad:
        return None if _mostly_controls(sample) else Encoding("utf-8")
    if good >= bad:
        return Encoding("utf-8", f"UTF-8 with invalid bytes, shown as \ufffd ({bad} in what was looked at)")
    if _is_chinese(sample):
        return Encoding("gb18030", "GB18030, guessed")
    return None if _mostly_controls(sample) else _guessed(sample)


def _wide(sample: bytes) -> Encoding | None:
    """UTF-16 without a mark: every other byte of mostly Latin text is NUL."""
    half = len(sample) // 2
    for offset, codec in ((1, "utf-16-le"), (0, "utf-16-be")):
        if (
            half
            and sample[offset::2].count(0) > half * 0.4
            and sample[1 - offset :: 2].count(0) < half * 0.05
        ):
            return Encoding(codec, f"{codec.upper()}, guessed")
    return None


def _utf8(sample: bytes) -> tuple[int, int]:
    """Multi-byte characters that are valid UTF-8, and bytes that aren't; one that the end of a full
    sample cuts is neither."""
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(sample, final=len(sample) < SAMPLE)
    bad = text.count("\ufffd") - sample.count("\ufffd".encode())
    return sum(1 for character in text if character > "\x7f") - bad, bad


def _is_chinese(sample: bytes) -> bool:
    """Decodes as GB18030, and mostly to characters of GB 2312's first level (lead bytes B0 to D7,
    the 3,755 most common) and its punctuation."""
    try:
        text = codecs.getincrementaldecoder("gb18030")().decode(sample)
    except UnicodeDecodeError:
        return False
    foreign = [character for character in text if character > "\x7f"]
    leads = "".join(foreign).encode("gb2312", "ignore")[::2]
    common = sum(1 for lead in leads if 0xB0 <= lead <= 0xD7 or lead in {0xA1, 0xA3})
    return len(foreign) >= 2 and common >= len(foreign) * 0.7


def _guessed(sample: bytes) -> Encoding:
    from charset_normalizer import from_bytes

    best = from_bytes(sample[:65_536]).best()
    codec = best.encoding if best and len(sample) > 64 else "cp1252"
    try:
        sample.decode(codec)
    except (UnicodeDecodeError, LookupError):
        codec = "latin-1"
    return Encoding(codec, f"{codec}, guessed")


def _mostly_controls(sample: bytes) -> bool:
    controls = sum(1 for byte in sample[:4096] if byte < 32 and byte not in _TEXT_CONTROLS)
    return controls * 10 > len(sample[:4096])
