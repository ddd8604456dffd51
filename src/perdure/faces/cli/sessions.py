"""`perdure sessions`: what is kept, looked at, copied, taken back and removed."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perdure.agent.spending import Spending, dollars
from perdure.app import Sessions, new_session_name, path_of
from perdure.chat.language import Language, say
from perdure.chat.messages import Entry, Kind, text_of
from perdure.chat.plans import step_of
from perdure.errors import ConfigError, Words, why
from perdure.faces.cli.asking import sure
from perdure.faces.cli.elsewhere import EXCERPTS, LEFT, tell, tell_forgotten, tell_lingering
from perdure.faces.cli.listing import rows
from perdure.faces.cli.restoring import restored_lines
from perdure.faces.cli.run import settings_from
from perdure.faces.cli.spans import as_spans, span_of
from perdure.faces.cli.terminal import json_line, language_of_person, printable, readable_size

NOT_READ: Words = ("{file} can't be read: {why}", "无法读取 {file}：{why}")
THERE_ALREADY: Words = (
    "{file} is there already, and is not written over: name another file, or remove it first",
    "{file} 已存在，不会被覆盖：请换一个文件名，或先删除它",
)
NOT_WRITTEN: Words = ("{file} can't be written: {why}", "无法写入 {file}：{why}")
IMPORTED: Words = (
    "{entries} {entries:entry|entries} from {file} ({form}) {entries:is|are} now the session {session}",
    "来自 {file}（{form}）的 {entries} 条记录已成为会话 {session}",
)
DAMAGED: Words = (
    "line {line}: {what}; its bytes are kept in the session: sessions export --format jsonl --raw shows them",
    "第 {line} 行：{what}；原字节已存入会话：可用 sessions export --format jsonl --raw 查看",
)
LEFT_OUT: Words = ("left out: {what}", "未导入：{what}")
SEVERAL: Words = (
    "the file holds {count} conversations, or pieces of one: they are one session now, in their order",
    "文件中有 {count} 段对话（或一段对话的若干部分）：已按顺序合为一个会话",
)
REPAIRED: Words = ("message {at}: {what}", "第 {at} 条消息：{what}")
FORKED: Words = ("{new} goes on from entry {at} of {session}", "{new} 从 {session} 的第 {at} 条记录继续")
UNDONE: Words = (
    "taken back: {count:entry|entries} {entries}; what tools did stays done",
    "已撤销：第 {entries} 条记录；工具做过的事不会撤销",
)
UNDONE_WITH_FILES: Words = (
    "taken back: {count:entry|entries} {entries}; what commands did stays done",
    "已撤销：第 {entries} 条记录；命令做过的事不会撤销",
)
WRITTEN: Words = ("written: {file}, {size}", "已写入：{file}，{size}")
#: In English they are called as in the files.
OF_STEP: Words = ("step {step}", "步骤 {step}")
KINDS: dict[Kind, Words] = {
    Kind.USER: ("user", "用户"),
    Kind.ASSISTANT: ("assistant", "助手"),
    Kind.TOOL_CALL: ("tool_call", "工具调用"),
    Kind.TOOL_RESULT: ("tool_result", "工具结果"),
    Kind.FEEDBACK: ("feedback", "检查意见"),
    Kind.NOTICE: ("notice", "提示"),
    Kind.RECALL: ("recall", "召回"),
    Kind.PLAN: ("plan", "计划"),
}
USED: Words = (
    "=== {prompt:,} + {completion:,} tokens, {cost}",
    "=== {prompt:,} + {completion:,} 个 token，{cost}",
)
TAKEN_BACK: Words = ("taken back", "已撤销")
NONE: Words = ("no sessions", "没有会话")
NO_STORE: Words = ("no sessions: there is no store {path}", "没有会话：存储 {path} 不存在")
NOTHING_TO_UNDO: Words = ("there is no turn to take back", "没有可撤销的回合")
REMOVE: Words = (
    "Remove the session {session} with its {entries} {entries:entry|entries} for good?",
    "要永久删除会话 {session} 及其 {entries} 条记录吗？",
)
REMOVED: Words = (
    "removed: {session}, {entries} {entries:entry|entries}",
    "已删除：{session}，{entries} 条记录",
)
SAME: Words = (
    "{same} {same:prompt|prompts} replayed, {same:the same|all the same} byte for byte",
    "重放了 {same} 个提示，逐字节相同",
)
NOTHING_SENT: Words = (
    "nothing to replay: no model was called in this session",
    "没有可重放的内容：此会话从未调用模型",
)
DIFFERENT: Words = (
    "{different} of {all} {all:prompt|prompts} {different:comes|come} out otherwise than sent, after "
    "{different:entry|entries} {after}",
    "{all} 个提示中有 {different} 个与发送时不同：在第 {after} 条记录之后",
)
UNKNOWN: Words = (
    "{unknown} {unknown:prompt|prompts} can't be compared: sent by an older perdure, or something in "
    "{unknown:it|them} was forgotten",
    "{unknown} 个无法比较：由旧版本发送，或其中有内容已被忘记",
)


def list_sessions(arguments: argparse.Namespace) -> int:
    """All sessions, the one that changed last first."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        every, is_there = sessions.listed(), sessions.is_there
    if arguments.json:
        for each in every:
            json_line(asdict(each))
        return 0
    if not is_there:
        print(printable(say(NO_STORE, lang, path=path_of(settings.store))), file=sys.stderr)
    elif not every:
        print(say(NONE, lang), file=sys.stderr)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows(every, lang, width):
        print(row)
    return 0


def show_session(arguments: argparse.Namespace) -> int:
    """The messages of a session, in order, whole, and what it used; or some of them."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        name = sessions.existing(arguments.name)
        shown = None
        if arguments.entries is not None:
            first, last = span_of(arguments.entries, name, sessions.count(name))
            shown = range(first, last + 1)
        undone = sessions.undone(name)
        used: list[Mapping[str, Any]] = []
        #: What has been used since the last that a model wrote, in each window: they stand side by side.
        writing: dict[str, list[Mapping[str, Any]]] = {}
        for record in sessions.records(name):
            if isinstance(record, Entry):
                written = record.kind in {Kind.ASSISTANT, Kind.TOOL_CALL} and record.lane in writing
                taken = Spending.recorded(writing.pop(record.lane)) if written else None
                if shown is None or record.seq in shown:
                    _show(record, taken, as_json=arguments.json, undone=record.seq in undone, lang=lang)
            elif record.type == "usage":
                used.append(record.body)
                if record.body.get("purpose") == "think":
                    writing.setdefault(record.lane, []).append(record.body)
    if used and shown is None and not arguments.json:
        whole = Spending.recorded(used)
        cost = dollars(whole.cost, lang)
        print(say(USED, lang, prompt=whole.usage.prompt, completion=whole.usage.completion, cost=cost))
    return 0


def export_session(arguments: argparse.Namespace) -> int:
    """A session as a text of its own, on stdout or in a file."""
    from perdure.faces import export

    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        records = list(sessions.records(arguments.name))
    ending = Path(arguments.output or "").suffix.removeprefix(".")
    form = arguments.format or (ending if ending in {"md", "html", "jsonl"} else "md")
    if form == "jsonl":
        pieces = export.as_jsonl(records, arguments.name, raw=arguments.raw)
    elif form == "html":
        pieces = export.as_html(records, arguments.name, raw=arguments.raw, lang=lang)
    else:
        pieces = export.as_markdown(records, arguments.name, raw=arguments.raw, lang=lang)
    whole = (piece.encode("utf-8", "backslashreplace") for piece in pieces)
    if arguments.output is None:
        sys.stdout.buffer.writelines(whole)
        sys.stdout.buffer.flush()
        return 0
    path = Path(arguments.output)
    try:
        # As private as the store.
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        try:
            with file:
                file.writelines(whole)
        except BaseException:
            # Half an export would stand in the way of the next one.
            path.unlink(missing_ok=True)
            raise
    except FileExistsError as error:
        raise ConfigError(THERE_ALREADY, file=arguments.output) from error
    except OSError as error:
        raise ConfigError(NOT_WRITTEN, file=arguments.output, why=why(error)) from error
    if not settings.quiet:
        told = say(WRITTEN, lang, file=arguments.output, size=readable_size(path.stat().st_size))
        print(printable(told), file=sys.stderr)
    return 0


def import_session(arguments: argparse.Namespace) -> int:
    """A new session from a file, of this program or of another."""
    from perdure.chat.foreign import read_history

    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    try:
        data = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    except OSError as error:
        raise ConfigError(NOT_READ, file=arguments.file, why=why(error)) from error
    history = read_history(data, arguments.file)
    with Sessions(settings) as sessions:
        imported = sessions.import_history(
            history, new_session_name() if arguments.session is None else arguments.session
        )
    for damage in history.damages:
        print(printable(say(DAMAGED, lang, line=damage.line, what=damage.say(lang))), file=sys.stderr)
    for repair in imported.repairs:
        print(printable(say(REPAIRED, lang, at=repair.at + 1, what=repair.say(lang))), file=sys.stderr)
    for left_out in history.left_out:
        print(say(LEFT_OUT, lang, what=left_out.say(lang)), file=sys.stderr)
    if history.conversations > 1:
        print(say(SEVERAL, lang, count=history.conversations), file=sys.stderr)
    if arguments.json:
        json_line(
            {
                "session": imported.session,
                "entries": imported.entries,
                "form": history.form,
                "conversations": history.conversations,
                "damages": [{"line": each.line, "what": each.say("en")} for each in history.damages],
                "left_out": [each.say("en") for each in history.left_out],
                "repairs": [{"message": each.at + 1, "what": each.what} for each in imported.repairs],
            }
        )
        return 0
    facts = {"entries": imported.entries, "file": arguments.file, "form": history.form}
    print(printable(say(IMPORTED, lang, session=imported.session, **facts)))
    return 0


def fork_session(arguments: argparse.Namespace) -> int:
    """A session of its own that goes on from an entry of another."""
    settings = settings_from(arguments)
    new = new_session_name() if arguments.session is None else arguments.session
    with Sessions(settings) as sessions:
        at = sessions.fork(arguments.name, new, arguments.at)
    print(printable(say(FORKED, language_of_person(settings.lang), new=new, at=at, session=arguments.name)))
    return 0


def undo_turn(arguments: argparse.Namespace) -> int:
    """The last turn of a session no longer counts."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        if arguments.files:
            for line in restored_lines(sessions.undo_files(arguments.name), lang):
                print(line)
        turn = sessions.undo_turn(arguments.name)
    if turn is None:
        print(say(NOTHING_TO_UNDO, lang))
    else:
        words = UNDONE_WITH_FILES if arguments.files else UNDONE
        print(say(words, lang, count=turn[1] - turn[0] + 1, entries=as_spans([turn])))
    return 0


def remove_session(arguments: argparse.Namespace) -> int:
    """A session is removed for good, after a question."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        name = sessions.existing(arguments.name)
        entries = sessions.count(name)
        if not arguments.yes:
            _tell_elsewhere(sessions, name, entries, lang)
        if not sure(say(REMOVE, lang, session=name, entries=entries), yes=arguments.yes, lang=lang):
            return 1
        gone = sessions.remove(name)
    tell_lingering(gone.lingers, lang)
    print(printable(say(REMOVED, lang, session=name, entries=entries)))
    tell_forgotten((each for each in gone.entries.items() if each[0] != name), lang)
    return 0


def _tell_elsewhere(sessions: Sessions, session: str, entries: int, lang: Language) -> None:
    """What goes in other sessions with a session, and what of it they keep."""
    every = range(1, entries + 1)
    excerpts = sessions.elsewhere(session, every, forks=False)
    tell(EXCERPTS, excerpts, lang)
    reached = sessions.elsewhere(session, every).items()
    kept = {name: set(found).difference(excerpts.get(name, ())) for name, found in reached}
    tell(LEFT, {name: found for name, found in kept.items() if found}, lang)


def verify_session(arguments: argparse.Namespace) -> int:
    """Whether the journal gives the prompts that were sent. 1 where it doesn't."""
    settings = settings_from(arguments)
    lang = language_of_person(settings.lang)
    with Sessions(settings) as sessions:
        found = sessions.verify(arguments.name)
    if arguments.json:
        json_line({"same": found.same, "different": list(found.different), "unknown": found.unknown})
        return 1 if found.different else 0
    if found.different:
        after = ", ".join(map(str, found.different))
        count = len(found.different)
        print(say(DIFFERENT, lang, different=count, all=found.same + count, after=after))
    elif found.same:
        print(say(SAME, lang, same=found.same))
    elif not found.unknown:
        print(say(NOTHING_SENT, lang))
    if found.unknown:
        print(say(UNKNOWN, lang, unknown=found.unknown))
    return 1 if found.different else 0


def _show(entry: Entry, taken: Spending | None, *, as_json: bool, undone: bool, lang: Language) -> None:
    """An entry, and what the call took that it is of."""
    if as_json:
        json_line(
            {
                "entry": entry.seq,
                "kind": entry.kind.value,
                "time": entry.time,
                "tokens": entry.tokens,
                "undone": undone,
                **({"lane": entry.lane} if entry.lane else {}),
                "usage": asdict(taken.usage) if taken else None,
                "cost": taken.cost if taken else None,
                "message": entry.message,
            }
        )
        return
    mark = f" ({say(TAKEN_BACK, lang)})" if undone else ""
    mark += f" ({say(OF_STEP, lang, step=step_of(entry.lane))})" if entry.lane else ""
    print(f"--- {entry.seq} {say(KINDS[entry.kind], lang)} {entry.time[:19]}{mark}")
    if text := text_of(entry.message):
        print(printable(text))
    parts = entry.message.get("content")
    for part in parts if isinstance(parts, list) else ():
        if part.get("type") != "text":
            print(printable(f"[{part.get('type')}]"))
    for call in entry.message.get("tool_calls") or ():
        print(printable(f"{call['function']['name']} {call['function']['arguments']}"))
