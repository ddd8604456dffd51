"""Sessions at a glance, a line for each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from perdure.agent.spending import dollars
from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.faces.cli.terminal import one_line, printable, readable_size, short_folder
from perdure.store.journal import SessionSummary

LISTED: Words = (
    "{name}  {changed}  {workspace}{turns} {turns:turn|turns}, {entries} {entries:entry|entries}, "
    "{size}{used}",
    "{name}  {changed}  {workspace}{turns} 个回合，{entries} 条记录，{size}{used}",
)
USED: Words = (", {tokens:,} tokens, {cost}", "，{tokens:,} 个 token，{cost}")
USED_TOKENS: Words = (", {tokens:,} tokens", "，{tokens:,} 个 token")
#: Columns to which a short name is filled up.
NAME_COLUMNS = 28
#: Characters of a request that are shown, and the columns with which it is still worth it.
REQUEST, FEWEST_COLUMNS = 60, 10


def rows(every: Sequence[SessionSummary], lang: Language, width: int | None = None) -> list[str]:
    """A line for each, of at most ``width`` columns: first the request is cut, then it is left out, then what
    was used is, then the folders are. Only a name that is too long for that gives a longer line, since it is
    there to be typed."""
    names = [printable(each.name) for each in every]
    folders = [short_folder(each.workspace) for each in every]
    name_columns = min(max(map(cell_len, names), default=0), NAME_COLUMNS)
    folder_columns = max(map(cell_len, folders), default=0)
    names = [set_cell_size(name, max(cell_len(name), name_columns)) for name in names]
    folders = [f"{set_cell_size(folder, folder_columns)}  " for folder in folders]
    used = [_used(each, lang) for each in every]
    none = [""] * len(every)
    forms = [
        [_row(*about, lang) for about in zip(every, names, *shown, strict=True)]
        for shown in ((folders, used), (folders, none), (none, none))
    ]
    # One column below the other: what a usual one has no room for, none shows.
    least = [
        max(
            [
                cell_len(line)
                for name, line in zip(names, form, strict=True)
                if cell_len(name) == name_columns
            ],
            default=0,
        )
        for form in forms
    ]
    shown = []
    for each, lines in zip(every, zip(*forms, strict=True), strict=True):
        fitting = (
            line
            for line, columns in zip(lines, least, strict=True)
            if width is None or max(columns, cell_len(line)) <= width
        )
        shown.append(_with_request(next(fitting, lines[-1]), each.request, width))
    return shown


def _row(each: SessionSummary, name: str, folder: str, used: str, lang: Language) -> str:
    return say(
        LISTED,
        lang,
        name=name,
        changed=each.changed[:16].replace("T", " "),
        workspace=folder,
        turns=each.turns,
        entries=each.entries,
        size=readable_size(each.size),
        used=used,
    )


def _used(each: SessionSummary, lang: Language) -> str:
    if not each.usage.total:
        return ""
    cost = "" if each.cost is None else dollars(each.cost, lang)
    return say(USED if cost else USED_TOKENS, lang, tokens=each.usage.total, cost=cost)


def _with_request(line: str, request: str, width: int | None) -> str:
    request = one_line(request, REQUEST)
    room = None if width is None else width - cell_len(line) - 2
    if room is not None and cell_len(request) > room:
        request = f"{set_cell_size(request, room - 1).rstrip()}…" if room >= FEWEST_COLUMNS else ""
    return f"{line}  {request}".rstrip()
