"""A file's bytes as text, and back to the same bytes: encoding, mark and line ends are kept. Pure."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from perdure.errors import ToolError
from perdure.tools.decoding import SAMPLE, encoding_of

#: What a codec that goes by a byte order mark writes: the mark, and the codec behind it.
_MARKED = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a text stands in a file. ``crlf``: most of its lines end with CR LF."""

    codec: str = "utf-8"
    mark: bytes = b""
    crlf: bool = False

    def encoded(self, text: str) -> bytes:
        """Raises `UnicodeEncodeError` where the encoding has no such character."""
        return self.mark + text.encode(self.codec, _ERRORS[self.codec == "utf-8"])


#: Bytes that are no UTF-8 stay what they are.
_ERRORS = {True: "surrogateescape", False: "strict"}


def text_of_bytes(data: bytes, path: str) -> tuple[str, TextForm]:
    """The text with its line ends as they are, and its form. Raises `ToolError` where it is binary, or can't
    be written back as it was."""
    mark = next((mark for mark in _MARKED if data.startswith(mark)), b"")
    encoding = encoding_of(data[:SAMPLE])
    if encoding is None:
        raise ToolError(f"error: {path!r} is a binary file of {len(data)} bytes")
    codec = _MARKED[mark] if mark else encoding.codec
    form = TextForm(codec, mark)
    try:
        text = data[len(mark) :].decode(codec, _ERRORS[codec == "utf-8"])
        if form.encoded(text) != data:
            raise ValueError
    except ValueError:
        raise ToolError(
            f"error: {path!r} is not wholly {codec.upper()}, so it can't be changed without harm: "
            "use a command"
        ) from None
    ends = text.count("\r\n")
    return text, TextForm(codec, mark, crlf=ends * 2 > text.count("\n"))


def with_ends_of(text: str, form: TextForm) -> str:
    """The text with the line ends of the form."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if form.crlf else plain
