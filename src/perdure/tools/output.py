"""What a program wrote, as text that any model and any store can take. Pure.

Always valid Unicode, without NUL and escape sequences, and not longer than asked. Nothing vanishes
silently: what can't be decoded shows as U+FFFD, control characters as their pictures (``␀``), and
what is cut says how much there was.
"""

from __future__ import annotations

import codecs
import re

#: Share of the kept characters that stands before the gap: errors and results come last.
HEAD_SHARE = 0.4
#: A longer output with a larger share of such characters is data, not text.
BINARY_FROM, BINARY_SHARE = 500, 0.1

_ESCAPES = re.compile(
    r"""\x1b(?:
        \[ [0-?]* [ -/]* [@-~]                          # CSI: colours, cursor
      | [\]PX^_] [^\x07\x1b\n]{0,4096} (?:\x07|\x1b\\)? # OSC, DCS and the like: titles, links
      | [ -/]+ [0-~]                                    # character sets
      | [0-~]                                           # two characters
    )?""",
    re.VERBOSE,
)
_LINE_ENDS = re.compile(r"\r\n?")
#: C0 controls but tab and line feed become their pictures, DEL too; C1 controls can't be shown.
_PICTURES = (
    {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
    | {127: "␡"}
    | dict.fromkeys(range(128, 160), "�")
)
_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f�]")


def readable(head: bytes, tail: bytes, total: int, limit: int, *, more: str = "") -> str:
    """The output of ``total`` bytes, of which ``head`` and ``tail`` were kept, as text of at most
    ``limit`` characters, the note about what is missing included; ``more``: how to read that."""
    whole = len(head) + len(tail) == total
    if whole:
        texts = [(head + tail).decode("utf-8", "replace")]
    else:  # the cut may go through a character; its halves are part of the gap
        before_gap = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        texts = [before_gap, _from_whole_character(tail).decode("utf-8", "replace")]
    if total >= BINARY_FROM and _binary("".join(texts)):
        return _binary_note(head, total)[:limit]
    texts = [_clean(text) for text in texts]
    if whole and len(texts[0]) <= limit:
        return texts[0]
    gap = f"\n[… {total} bytes of output; the middle is left out{more} …]\n"
    room = limit - len(gap)
    if room <= 0:
        return texts[0][:limit]
    before = int(room * HEAD_SHARE)
    return _first(texts[0], before) + gap + _last(texts[-1], room - before)


def _clean(text: str) -> str:
    return _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)).translate(_PICTURES)


def _binary(text: str) -> bool:
    return len(_UNREADABLE.findall(text)) > BINARY_SHARE * len(text)


def _binary_note(head: bytes, total: int) -> str:
    begins = head[:16].hex(" ")
    return (
        f"[binary, {total} bytes, not shown; it begins with {begins}. "
        "If it is text in another encoding, convert it with iconv; else look at it with xxd or file]"
    )


def _from_whole_character(piece: bytes) -> bytes:
    """Without the continuation bytes, three at most, of a character that began before."""
    start = 0
    while start < min(3, len(piece)) and piece[start] & 0xC0 == 0x80:
        start += 1
    return piece[start:]


def _first(text: str, limit: int) -> str:
    """The beginning, to the end of a line where one is near."""
    text = text[:limit]
    end = text.rfind("\n", limit * 3 // 4)
    return text if end < 0 else text[:end]


def _last(text: str, limit: int) -> str:
    """The end, from the beginning of a line where one is near."""
    text = text[max(0, len(text) - limit) :]
    begin = text.find("\n", 0, limit // 4)
    return text if begin < 0 else text[begin + 1 :]
