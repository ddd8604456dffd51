"""Markdown that somebody wrote, so that a viewer does nothing with it but show it.

Viewers may take HTML in Markdown for HTML, fetch pictures, and follow any link. What would begin such a thing
is escaped where it isn't code, so that it shows as it was written; the result is read again, as viewers
with and without tables read it, before it is believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import count

from markdown_it import MarkdownIt
from markdown_it.token import Token

#: What begins HTML or a picture, unless it is escaped already; and what begins anything but code.
_HTML = re.compile(r"(?<!\\)(?P<kept>(?:\\\\)*)(?P<sign><(?=[^\s<])|!(?=\[))")
_LINKS = re.compile(r"(?<!\\)(?P<kept>(?:\\\\)*)(?P<sign><(?=[^\s<])|!(?=\[)|\[)")
_MAY_BE_LINK = re.compile(r"\][(\[:]")
#: A page, a mail, or a place beside the file.
_HARMLESS_LINK = re.compile(r"https?:|mailto:|[^:]*(?:[/?#]|\Z)", re.IGNORECASE)
_CODE = frozenset({"fence", "code_block", "code_inline"})
_ACTIVE = frozenset({"html_block", "html_inline", "image"})


def harmless(markdown: str) -> str:
    """The Markdown without HTML, pictures, and links that would do something else than open a page. What
    stands in code stays as it is, but where viewers disagree on what is code."""
    if not (_HTML.search(markdown) or _MAY_BE_LINK.search(markdown)):
        return markdown
    for signs in (_HTML, _LINKS):
        escaped = _escaped(markdown, signs, _in_code(markdown, signs))
        if all(_does_nothing(parser, escaped) for parser in _parsers()):
            return escaped
    return _escaped(markdown, _LINKS, frozenset())


def _escaped(markdown: str, signs: re.Pattern[str], spared: frozenset[int]) -> str:
    numbers = count()
    return signs.sub(
        lambda match: match[0] if next(numbers) in spared else rf"{match['kept']}\{match['sign']}", markdown
    )


def _in_code(markdown: str, signs: re.Pattern[str]) -> frozenset[int]:
    """Which of the signs stand in code, from 0: each is marked by its number, and looked for there."""
    mark = next(letter for letter in map(chr, count(0xE000)) if letter not in markdown)
    numbers = count()
    marked = signs.sub(lambda match: f"{match['kept']}{mark}{next(numbers)}{mark}", markdown)
    found = re.compile(f"{mark}([0-9]+){mark}")
    parser, *_ = _parsers()
    code = (token.content for token in _all(parser.parse(marked)) if token.type in _CODE)
    return frozenset(int(number) for text in code for number in found.findall(text))


def _does_nothing(parser: MarkdownIt, markdown: str) -> bool:
    read: dict[str, dict[str, dict[str, str]]] = {}
    tokens = [*_all(parser.parse(markdown, read))]
    links = [str(token.attrs.get("href", "")) for token in tokens if token.type == "link_open"]
    links += [each["href"] for each in read.get("references", {}).values()]
    return all(token.type not in _ACTIVE for token in tokens) and all(map(_HARMLESS_LINK.match, links))


def _all(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


@lru_cache
def _parsers() -> tuple[MarkdownIt, ...]:
    parsers = (MarkdownIt("commonmark"), MarkdownIt("commonmark").enable("table"))
    for parser in parsers:
        # What is harmless is judged here, so every link has to be seen.
        parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parsers
