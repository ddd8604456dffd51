"""`perdure recall` and `perdure forget`: look something up in the archive, or remove it for good."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from perdure.app import Sessions
from perdure.chat.language import say
from perdure.errors import ConfigError, Words
from perdure.faces.cli.asking import sure
from perdure.faces.cli.elsewhere import ALSO, tell, tell_forgotten, tell_lingering
from perdure.faces.cli.progress import waiting
from perdure.faces.cli.run import settings_from
from perdure.faces.cli.spans import span_of
from perdure.faces.cli.terminal import json_line, language_of_person, one_line, printable
from perdure.memory.excerpts import line
from perdure.memory.passages import Passage

SEARCHING: Words = ("searching", "搜索中")
EMBEDDING: Words = (
    "searching; {done} {done:passage|passages} made ready to be found by meaning",
    "搜索中；已有 {done} 段可按含义查找",
)
NOT_READY: Words = (
    "not all that was said can be found by its meaning yet; words were searched everywhere, and the next "
    "search goes on from here",
    "尚有内容不能按含义查找；已在全部内容中按词语查找，下次搜索会接着准备",
)
BEHIND: Words = (
    "{count} {count:entry|entries} could not be taken into the archive, since the store can't be written "
    "now; they were not searched",
    "存储目前无法写入，有 {count} 条记录未能纳入档案，没有搜索到它们",
)
EMPTY: Words = ("the query is empty", "查询内容为空")
NOTHING: Words = ("nothing is found", "没有找到")
WHOLE: Words = (
    "an entry is shown whole by, for example: {command}",
    "查看整条记录，例如：{command}",
)
FARTHER: Words = (
    "only this session was searched; --memory project searches all of its folder, --memory all every one",
    "只搜索了本会话；--memory project 搜索其文件夹的所有会话，--memory all 搜索全部会话",
)
NONE_HOLDS: Words = ("no entry holds all of these words", "没有同时包含这些词的记录")
FORGET: Words = (
    "Forget {count} {count:entry|entries} of {session} for good?",
    "要永久忘记 {session} 的这 {count} 条记录吗？",
)
FORGET_ALL: Words = (
    "Forget the whole session {session}, {count} {count:entry|entries}, for good?",
    "要永久忘记整个会话 {session}（{count} 条记录）吗？",
)
FORGOTTEN_ALL: Words = (
    "forgotten: the whole session {session}, {count} {count:entry|entries}",
    "已忘记：整个会话 {session}（{count} 条记录）",
)
SUMMARIES: Words = (
    "removed with them: {summaries} {summaries:summary|summaries}, and all notes that were made since",
    "随之删除：{summaries} 份摘要，以及此后生成的所有笔记",
)


def recall(arguments: argparse.Namespace) -> int:
    """What in the archive is nearest to a query, best first."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    if not arguments.query.strip():
        raise ConfigError(EMPTY)
    with Sessions(settings) as sessions:
        name = sessions.existing(arguments.name)
        with waiting(say(SEARCHING, lang), quiet=settings.quiet) as tell:
            is_ready = sessions.catch_up(name, on_progress=lambda done: tell(say(EMBEDDING, lang, done=done)))
            found = sessions.recall(name, arguments.query, arguments.limit, waits=0)
            behind = sessions.behind(name)
    if not (is_ready or settings.quiet):
        print(say(NOT_READY, lang), file=sys.stderr)
    if behind and not settings.quiet:
        print(say(BEHIND, lang, count=behind), file=sys.stderr)
    if arguments.json:
        hits = [
            {
                "entry": each.passage.entry,
                "score": round(each.score, 4),
                "text": each.passage.text,
                "session": each.passage.session,
                "kind": each.passage.kind.value,
                "time": each.passage.time,
            }
            for each in found
        ]
        json_line(hits)
        return 0
    if not found:
        print(say(NOTHING, lang))
        if settings.memory == "session" and not settings.quiet:
            print(say(FARTHER, lang), file=sys.stderr)
    for number, each in enumerate(found):
        shown = (part.rstrip() for part in printable(line(each.passage, name, lang)).split("\n"))
        print("\n" * bool(number) + "\n".join(shown))
    elsewhere = next((each.passage for each in found if each.passage.session != name), None)
    if elsewhere is not None and not settings.quiet:
        command = _showing(elsewhere, getattr(arguments, "store", None))
        print(printable(say(WHOLE, lang, command=command)), file=sys.stderr)
    return 0


def forget(arguments: argparse.Namespace) -> int:
    """Entries, or a whole session, are removed for good, after a question; what was, is said."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        name = sessions.existing(arguments.name)
        count = sessions.count(name)
        whole = arguments.entries is None and arguments.query is None
        numbers = range(1, count + 1) if whole else _chosen(sessions, arguments, count)
        if not numbers and not whole:
            if arguments.json:
                json_line({"forgotten": {}, "summaries": 0, "lingers": False})
            else:
                print(say(NONE_HOLDS, lang))
            return 1
        if not arguments.yes:
            if not whole:
                _preview(sessions, name, numbers)
            tell(ALSO, sessions.elsewhere(name, numbers), lang)
        question = say(FORGET_ALL if whole else FORGET, lang, session=name, count=len(numbers))
        if not sure(question, yes=arguments.yes, lang=lang):
            return 1
        gone = sessions.forget(name, numbers)
        lingers = sessions.remove(name).lingers if whole else gone.lingers
    tell_lingering(lingers, lang)
    if arguments.json:
        forgotten = {session: list(entries) for session, entries in gone.entries.items()}
        json_line({"forgotten": forgotten, "summaries": gone.summaries, "lingers": lingers})
        return 0
    if whole:
        print(printable(say(FORGOTTEN_ALL, lang, session=name, count=count)))
    tell_forgotten((each for each in gone.entries.items() if not whole or each[0] != name), lang)
    if gone.summaries:
        print(say(SUMMARIES, lang, summaries=gone.summaries))
    return 0


def _showing(passage: Passage, store: str | None) -> str:
    """The command that shows a passage's entry whole."""
    words = ["perdure", "sessions", "show", passage.session, "--entries", str(passage.entry)]
    return shlex.join([*words, "--store", store] if store else words)


def _chosen(sessions: Sessions, arguments: argparse.Namespace, count: int) -> Sequence[int]:
    """The entries that are to be forgotten: those of a range, those that hold words, or those that both
    name."""
    chosen = set(range(1, count + 1))
    if arguments.entries is not None:
        first, last = span_of(arguments.entries, arguments.name, count)
        chosen &= set(range(first, last + 1))
    if arguments.query is not None:
        chosen &= set(sessions.holding(arguments.name, arguments.query))
    return sorted(chosen)


def _preview(sessions: Sessions, session: str, numbers: Sequence[int]) -> None:
    """What the question is about, beside the question."""
    from perdure.chat.messages import text_of

    for entry in sessions.journal.entries(session, numbers[:20]):
        print(
            printable(f"  {entry.seq} {entry.kind.value}: {one_line(text_of(entry.message), 90)}"),
            file=sys.stderr,
        )
    if len(numbers) > 20:
        print(f"  ... {len(numbers) - 20}", file=sys.stderr)
