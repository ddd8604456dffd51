"""A session as one page that needs nothing else: no script, no font, no request.

What stands in a session is data: all of it is escaped, and the page's policy allows nothing but its own
style (by its hash) and pictures that it carries.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from perdure.chat.language import Language, language_of, say
from perdure.chat.messages import Entry, Kind
from perdure.errors import Words
from perdure.faces.cli.terminal import one_line, printable
from perdure.faces.export_records import (
    IMAGE,
    UNDONE,
    EntryShown,
    EventShown,
    as_json_text,
    masked_value,
    readable_time,
    shown,
)
from perdure.store.journal import Recorded

LINES: Words = ("lines: {lines}", "{lines} 行")
TOKENS: Words = ("{tokens} {tokens:token|tokens}", "{tokens} 个 token")
TURNS: Words = ("Turns", "各轮")
SETTINGS: Words = ("Settings", "设置")
COUNTED: Words = (
    "{entries} {entries:entry|entries}, {begun} to {ended}",
    "{entries} 条记录，{begun} 至 {ended}",
)

#: Lines and characters of a text of a tool up to which it is shown open.
_OPEN_LINES, _OPEN_CHARACTERS = 12, 1_200
#: Characters of a long text's first line, where it is folded.
_TITLE = 80
#: The pictures that a page may carry.
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}\Z")
_SPOKEN = frozenset({Kind.USER, Kind.ASSISTANT, Kind.TOOL_CALL, Kind.PLAN})

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fbfaf8; --faint: #63676e; --line: #dcd9d3;
  --person: #e7effb; --data: #f1efea; --accent: #1f5fbf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e4e2; --paper: #17181a; --faint: #9b9fa6;
  --line: #35373b; --person: #1d2b40; --data: #202225; --accent: #86b3f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 1.25rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans",
  "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
a { color: var(--accent); }
.about, .head { color: var(--faint); font-size: .85rem; }
.head { display: flex; flex-wrap: wrap; gap: .1rem .75rem; margin-bottom: .3rem; }
.head b { color: var(--ink); }
article { margin: 0 0 1.25rem; scroll-margin-top: 1rem; }
article:target { outline: 2px solid var(--accent); outline-offset: .4rem; border-radius: .3rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.user .text { background: var(--person); padding: .6rem .85rem; border-radius: .6rem; }
.undone { opacity: .6; }
pre { margin: .3rem 0; padding: .6rem .8rem; background: var(--data); border-radius: .4rem;
  white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4;
  font: .85rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Noto Sans Mono", monospace; }
summary { cursor: pointer; color: var(--faint); font-size: .85rem; overflow-wrap: anywhere; }
details { margin: .3rem 0; }
.call { margin: .5rem 0 0; font-size: .9rem; }
.event { margin: 1.25rem 0; padding-inline-start: .8rem; border-inline-start: 3px solid var(--line);
  color: var(--faint); font-size: .9rem; }
img { max-width: 100%; height: auto; border-radius: .4rem; }
nav ol { margin: .4rem 0; padding-inline-start: 2.2rem; }
@media print { details::details-content { content-visibility: visible; block-size: auto; } }
"""


def as_html(
    records: Sequence[Entry | Recorded],
    session: str,
    settings: Mapping[str, Any] | None = None,
    *,
    raw: bool = False,
    lang: Language = "en",
) -> Iterator[str]:
    """The page in pieces: the turns, then each entry with an anchor (``#e12``)."""
    every = list(shown(records, raw=raw, lang=lang))
    title = escape(printable(session))
    yield _head(title, lang)
    yield f'<header><h1 dir="auto">{title}</h1>\n<p class="about">{_about(records, lang)}</p>\n'
    if settings:
        given = dict(settings) if raw else masked_value(dict(settings))
        yield _folded(say(SETTINGS, lang), printable(as_json_text(given)))
    yield from _turns([each for each in every if isinstance(each, EntryShown) and each.turn], lang)
    yield "</header>\n<main>\n"
    for each in every:
        yield from _event(each) if isinstance(each, EventShown) else _entry(each, lang)
    yield "</main>\n</body>\n</html>\n"


def _head(title: str, lang: Language) -> str:
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    spoken = "zh-CN" if lang == "zh" else "en"
    return (
        f'<!DOCTYPE html>\n<html lang="{spoken}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )


def _about(records: Sequence[Entry | Recorded], lang: Language) -> str:
    entries = [record for record in records if isinstance(record, Entry)]
    times = [readable_time(entry.time) for entry in entries if entry.time]
    begun, ended = (times[0], times[-1]) if times else ("?", "?")
    return escape(say(COUNTED, lang, entries=len(entries), begun=begun, ended=ended))


def _turns(beginnings: Sequence[EntryShown], lang: Language) -> Iterator[str]:
    if len(beginnings) < 2:
        return
    yield f"<nav><details><summary>{say(TURNS, lang)}: {len(beginnings)}</summary>\n<ol>\n"
    for each in beginnings:
        request = escape(each.request) or "…"
        yield f'<li><a href="#e{each.number}"><bdi>{request}</bdi></a></li>\n'
    yield "</ol></details></nav>\n"


def _entry(each: EntryShown, lang: Language) -> Iterator[str]:
    if each.turn:
        yield f'<h2 dir="auto">{escape(each.title(lang))}</h2>\n'
    classes = f"{each.kind.value} undone" if each.undone else each.kind.value
    yield f'<article id="e{each.number}" class="{classes}">\n<div class="head">'
    yield f'<a href="#e{each.number}">{each.number}</a><b><bdi>{escape(each.who)}</bdi></b>'
    yield f"<span>{escape(each.time)}</span><span>{say(TOKENS, lang, tokens=each.tokens)}</span>"
    yield f"<span>{say(UNDONE, lang)}</span></div>\n" if each.undone else "</div>\n"
    if each.text:
        yield _spoken(each.text) if each.kind in _SPOKEN else _data(each.text, lang)
    for image in each.images:
        yield _picture(image, lang)
    for call in each.calls:
        yield f'<p class="call"><code dir="auto">{escape(call.name)}</code></p>\n'
        yield _data(call.arguments, lang)
    yield "</article>\n"


def _event(each: EventShown) -> Iterator[str]:
    yield f'<div class="event" dir="auto">{escape(each.what)}\n'
    if each.text:
        yield _spoken(each.text)
    yield "</div>\n"


def _spoken(text: str) -> str:
    return f'<div class="text" dir="auto"{_language(text)}>{escape(text)}</div>\n'


def _data(text: str, lang: Language) -> str:
    """Text of a tool: long ones folded, with their first line to see."""
    lines = text.count("\n") + 1
    if lines <= _OPEN_LINES and len(text) <= _OPEN_CHARACTERS:
        return f"{_block(text)}\n"
    first = one_line(text.lstrip().split("\n", 1)[0], _TITLE)
    return _folded(first, text, f" ({say(LINES, lang, lines=lines)})")


def _folded(summary: str, text: str, beside: str = "") -> str:
    shown = f"<summary><bdi>{escape(summary)}</bdi>{beside}</summary>"
    return f"<details>{shown}{_block(text)}</details>\n"


def _block(text: str) -> str:
    # A line break behind <pre> is not shown, so one is put there for a text that begins with one.
    return f'<pre dir="auto"{_language(text)}>\n{escape(text)}</pre>'


def _picture(address: str, lang: Language) -> str:
    if _PICTURE.match(address):
        return f'<p><img src="{address}" alt="{say(IMAGE, lang)}"></p>\n'
    # One from elsewhere would be a request.
    return f"<p>[{say(IMAGE, lang)}: <bdi>{escape(one_line(address))}</bdi>]</p>\n"


def _language(text: str) -> str:
    """The text's own language where it is known: browsers choose the shapes of characters by it."""
    return ' lang="zh-CN"' if language_of(text[:2_000]) == "zh" else ' lang=""'
