"""What is removed in other sessions with something that the person removes in one: said before and after."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping

from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.faces.cli.spans import in_spans
from perdure.faces.cli.terminal import printable

FORGOTTEN: Words = (
    "forgotten in {session}: {count:entry|entries} {entries}",
    "已在 {session} 中忘记：第 {entries} 条记录",
)
ALSO: Words = (
    "  and in {session}: {count} {count:entry|entries} with the same words or an excerpt of them",
    "  另有会话 {session}：{count} 条记录含有相同的内容或其摘录",
)
EXCERPTS: Words = (
    "  and in {session}: {count} {count:entry|entries} with an excerpt of it",
    "  另有会话 {session}：{count} 条记录含有它的摘录",
)
LEFT: Words = (
    "  kept in {session}: {count} {count:entry|entries} with the same words or an excerpt of them; "
    "`perdure forget` removes these too",
    "  会话 {session} 中保留：{count} 条记录含有相同的内容或其摘录；`perdure forget` 会将其一并删除",
)
MORE: Words = (
    "  and in {count} more {count:session|sessions}",
    "  以及另外 {count} 个会话",
)
LINGERS: Words = (
    "the file still holds what was forgotten, since another process is using the store or there is no room "
    "on the disk to write it anew: the next perdure command that can will clean it",
    "文件里仍留有已忘记的内容：另一进程正在使用存储，或磁盘空间不足，无法重写文件；"
    "下一条能做到的 perdure 命令会将其清除",
)
#: Sessions that are named before a question.
NAMED = 20


def tell(words: Words, places: Mapping[str, Collection[int]], lang: Language) -> None:
    """Say on stderr of how many entries of which sessions the words are true."""
    for session in list(places)[:NAMED]:
        told = say(words, lang, session=session, count=len(places[session]))
        print(printable(told), file=sys.stderr)
    if len(places) > NAMED:
        print(say(MORE, lang, count=len(places) - NAMED), file=sys.stderr)


def tell_forgotten(places: Iterable[tuple[str, Collection[int]]], lang: Language) -> None:
    """Say which entries were forgotten in which sessions."""
    for session, entries in places:
        facts = {"session": session, "count": len(entries), "entries": in_spans(entries)}
        print(printable(say(FORGOTTEN, lang, **facts)))


def tell_lingering(lingers: bool, lang: Language) -> None:
    """Say that the file still holds what was forgotten, where it does."""
    if lingers:
        print(say(LINGERS, lang), file=sys.stderr)
