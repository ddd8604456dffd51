"""Bytes of a file to the JSON values in it, and what was damaged.

A session file is written while things go wrong: a process is killed in the middle of a line, a disk
fills up, a file system gives back zeros, another program goes on behind a line that has no end. So
nothing here fails as a whole: each good value before and after the damage is read, and each damage
is named once, with its bytes. The time is linear in the file.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.chat.language import Language, say
from perdure.errors import Words

CUT_OFF: Words = ("the file ends in the middle of it", "文件在此中途结束")
NOT_JSON: Words = ("not a whole JSON value", "不是完整的 JSON")
ZEROS: Words = ("zero bytes", "全是零字节")
BAD_BYTES: Words = ("bytes that are no text were read as �", "有些字节不是文本，读作 �")
TOO_DEEP: Words = ("nested too deeply", "嵌套过深")
NO_MESSAGE: Words = ("no message", "不是消息")

#: Levels that a value may be nested. What is deeper could not be written down again everywhere.
DEEPEST = 100
#: Digits of an integer that Python is sure to convert in both directions.
_DIGITS = 600
#: Damaged elements of one JSON document behind which reading goes on.
_MOST_DAMAGES = 1_000
#: What may stand around a value: also zeros, where a file was enlarged before it was written.
_AROUND = b" \t\r\n\0"
#: A byte that is no text, as Python escapes it.
_ESCAPED = re.compile("[\udc80-\udcff]")
_GAP = re.compile(r"[\s\0]*")
_COMMAS = re.compile(r"[\s\0,]*")
_FIRST_KEY = re.compile(r'\{\s*"[^"\\]{1,40}"\s*:')
#: Where the list begins in a document that can't be read as a whole.
_LIST = re.compile(r'"(?:messages|input|items)"\s*:\s*\[')


@dataclass(frozen=True, slots=True)
class Damage:
    """``line``, from 1, that could not be read as it is; ``raw``: its bytes."""

    line: int
    what: Words
    raw: bytes

    def say(self, lang: Language) -> str:
        return say(self.what, lang)


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON object or array, and the line on which it begins."""

    line: int
    value: Any


def values_in(data: bytes) -> tuple[list[Value], list[Damage]]:
    """What stands in the file: the lines of JSONL; the elements of an array; or one object, whole or, where
    it is broken, the elements of its list of messages. UTF-8, or UTF-16 as Windows writes it. Must not
    raise."""
    encoding = _utf16_of(data)
    if not encoding:
        reading = _Reading(data.removeprefix(codecs.BOM_UTF8))
        reading.run()
        return reading.values, reading.damages
    whole = len(data) - len(data) % 2
    text = data[:whole].decode(encoding, "surrogatepass").removeprefix("\ufeff")
    reading = _Reading(text.encode("utf-8", "surrogatepass"))
    reading.run()
    damages = [replace(each, raw=_again(each.raw, encoding)) for each in reading.damages]
    if half := data[whole:]:
        last = text.count("\n") + 1
        torn = damages.pop() if damages and damages[-1].what is CUT_OFF else Damage(last, CUT_OFF, b"")
        damages.append(replace(torn, raw=torn.raw + half))
    return reading.values, damages


def _utf16_of(data: bytes) -> str:
    """The encoding, by its mark or because every other byte of the beginning is zero; empty for UTF-8."""
    first, second = (data[0], data[1]) if len(data) > 1 else (0, 0)
    if data.startswith(codecs.BOM_UTF16_LE) or (first and not second and first in b"{[ \r\n\t"):
        return "utf-16-le"
    if data.startswith(codecs.BOM_UTF16_BE) or (second and not first and second in b"{[ \r\n\t"):
        return "utf-16-be"
    return ""


def _again(raw: bytes, encoding: str) -> bytes:
    return raw.decode("utf-8", "surrogatepass").encode(encoding, "surrogatepass")


@dataclass
class _Reading:
    body: bytes
    values: list[Value] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    #: How the records of this file begin, up to the first colon.
    opening: str = ""

    def run(self) -> None:
        start = self.body.lstrip(_AROUND)[:1]
        array = start == b"["
        lines = [line for line in self._some_lines() if line.strip(_AROUND)]
        # One array alone is a document; several are lines.
        by_lines = len(lines) > array and all(map(self._is_whole, lines[: 1 + array]))
        is_document = start in (b"[", b"{") and not by_lines
        if not is_document or not self._document(array=array):
            self._lines()

    def _some_lines(self) -> list[bytes]:
        return self.body.strip(_AROUND).split(b"\n", 10)[:10]

    def _is_whole(self, line: bytes) -> bool:
        line = line.strip(_AROUND)
        try:
            text = line.decode("utf-8", "replace")
            value, end = _decoded(text)
            return isinstance(value, dict | list) and end == len(text)
        except (ValueError, RecursionError):
            return False

    # --- lines

    def _lines(self) -> None:
        lines = self.body.split(b"\n")
        for number, raw in enumerate(lines, 1):
            self._line(number, raw, last=number == len(lines))

    def _line(self, number: int, raw: bytes, *, last: bool) -> None:
        content = raw.strip(_AROUND)
        if not content or raw.strip(b" \t\r\n") != content:
            if b"\0" in raw:
                self.damages.append(Damage(number, ZEROS, raw))
            if not content:
                return
        if content[:1] not in b"{[":
            self.damages.append(Damage(number, NOT_JSON, raw))
            return
        wrong: Words | None = None
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text, wrong = content.decode("utf-8", "replace"), BAD_BYTES
        at = 0
        while at < len(text):
            try:
                value, end = _decoded(text, at)
            except (ValueError, RecursionError) as error:
                wrong = _reason(error, last)
                self._joined(number, text, at)
                break
            self._take(number, text, value, at)
            at = _end(_GAP, text, end)
        if wrong:
            self.damages.append(Damage(number, wrong, raw))

    def _take(self, number: int, text: str, value: Any, at: int) -> None:
        self.values.append(Value(number, value))
        if not self.opening and (key := _FIRST_KEY.match(text, at)):
            self.opening = key[0]

    def _joined(self, number: int, text: str, at: int) -> None:
        """The whole record behind a torn one on the same line: some program went on writing there."""
        key = _FIRST_KEY.match(text)
        for opening in {self.opening, key[0] if key else ""} - {""}:
            found = text.rfind(opening, at + 1)
            try:
                value, end = _decoded(text, found) if found > 0 else (None, 0)
            except (ValueError, RecursionError):
                continue
            if _end(_GAP, text, end) == len(text):
                self.values.append(Value(number, value))
                return

    # --- one document

    def _document(self, *, array: bool) -> bool:
        """Read the file as one document; False where it is none, or nothing can be read of it."""
        # A byte that is no text stays recognisable, for the damages' sake.
        text = self.body.decode("utf-8", "surrogateescape")
        start = _end(_GAP, text, 0)
        if not array:
            try:
                value, end = _decoded(_as_text(text), start)
            except (ValueError, RecursionError):
                found = _LIST.search(text)
                if not found or any(self._is_whole(line) for line in self._some_lines()[1:]):
                    return False
                start = found.end() - 1
            else:
                if _end(_GAP, text, end) < len(text):
                    return False
                self.values.append(Value(1, value))
        if array or not self.values:
            for each in _elements(text, start + 1, alone=array):
                if isinstance(each, Value):
                    self.values.append(each)
                else:
                    self.damages.append(each)
        if not self.values:
            self.damages.clear()
            return False
        if not text.isascii() and _ESCAPED.search(text):
            self._name_bad_lines()
        return True

    def _name_bad_lines(self) -> None:
        spans = ((damage.line, damage.raw.count(b"\n")) for damage in self.damages)
        named = {line for first, more in spans for line in range(first, first + more + 1)}
        for number, raw in enumerate(self.body.split(b"\n"), 1):
            try:
                raw.decode()
            except UnicodeDecodeError:
                if number not in named:
                    self.damages.append(Damage(number, BAD_BYTES, raw))


def _elements(text: str, at: int, *, alone: bool) -> Iterator[Value | Damage]:
    """The elements of an array whose bracket stands before ``at``. Behind a broken one, reading goes on at
    the next line that is indented alike and begins an object. ``alone``: the array is in nothing else, so
    that what stands behind it is read, too: another array, or values."""
    line, counted, damages = 1, 0, 0
    while (at := _end(_COMMAS, text, at)) < len(text):
        if text[at] == "]":
            if not alone:
                return
            at = _end(_GAP, text, at + 1)
            at += text[at : at + 1] == "["
            continue
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, end = _decoded(text, at)
            if not text.isascii() and _ESCAPED.search(text, at, end):
                value, _ = _decoded(_as_text(text[at:end]))
        except (ValueError, RecursionError) as error:
            damages += 1
            end = _next_alike(text, at) if damages < _MOST_DAMAGES else len(text)
            raw = text[at:end].encode("utf-8", "surrogateescape")
            yield Damage(line, _reason(error, end == len(text)), raw)
        else:
            yield Value(line, value)
        at = end


def _as_text(text: str) -> str:
    return text if text.isascii() else _ESCAPED.sub("\ufffd", text)


def _next_alike(text: str, at: int) -> int:
    begins = text.rfind("\n", 0, at) + 1
    indent = text[begins:at]
    found = -1 if indent.strip() else text.find(f"\n{indent}{{", at)
    return len(text) if found < 0 else found


# --- values


def as_bytes(value: Any) -> bytes:
    """A value that was read, written down again."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _decoded(text: str, at: int = 0) -> tuple[Any, int]:
    """The JSON value at this place, and where it ends. Raises `ValueError` or `RecursionError`."""
    value, end = _DECODER.raw_decode(text, at)
    if text.count("{", at, end) + text.count("[", at, end) > DEEPEST and _is_deep(value):
        raise RecursionError
    return value, end


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits


def _number(digits: str) -> float | None:
    value = float(digits)
    return value if abs(value) != float("inf") else None


#: As JSON, but what is no JSON number becomes null, and an integer too long for Python a text.
_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=lambda name: None)


def _reason(error: Exception, last: bool) -> Words:
    if isinstance(error, RecursionError):
        return TOO_DEEP
    return CUT_OFF if last else NOT_JSON


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
