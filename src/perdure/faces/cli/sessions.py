"""`perdure sessions`: what is kept, and what was said."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from typing import Any

from perdure.app import open_journal
from perdure.chat.messages import Entry, text_of
from perdure.errors import SessionUnknown
from perdure.faces.cli.run import settings_from
from perdure.faces.cli.terminal import printable


def list_sessions(arguments: argparse.Namespace) -> int:
    """All sessions, the one that changed last first."""
    with closing(open_journal(settings_from(arguments).store)) as journal:
        for each in journal.sessions():
            if arguments.json:
                json_line(
                    {
                        "name": each.name,
                        "created": each.created,
                        "changed": each.changed,
                        "entries": each.entries,
                        "turns": each.turns,
                    }
                )
            else:
                print(
                    f"{printable(each.name)}  {each.changed[:19]}  {each.turns} turns, {each.entries} entries"
                )
    return 0


def show_session(arguments: argparse.Namespace) -> int:
    """The messages of a session, in order, whole."""
    with closing(open_journal(settings_from(arguments).store)) as journal:
        if not journal.exists(arguments.name):
            raise SessionUnknown(name=arguments.name)
        for record in journal.records(arguments.name):
            if isinstance(record, Entry):
                _show(record, as_json=arguments.json)
    return 0


def _show(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        json_line(
            {
                "entry": entry.seq,
                "kind": entry.kind.value,
                "time": entry.time,
                "tokens": entry.tokens,
                "message": entry.message,
            }
        )
        return
    print(f"--- {entry.seq} {entry.kind.value} {entry.time[:19]}")
    if text := text_of(entry.message):
        print(printable(text))
    for call in entry.message.get("tool_calls") or ():
        print(printable(f"{call['function']['name']} {call['function']['arguments']}"))


def json_line(value: dict[str, Any]) -> None:
    """Write one JSON object as a line of UTF-8."""
    line = json.dumps(value, ensure_ascii=False)
    sys.stdout.buffer.write(line.encode("utf-8", "backslashreplace") + b"\n")
