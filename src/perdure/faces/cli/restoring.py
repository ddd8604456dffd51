"""What came of taking back what tools changed in files, in a line each."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.chat.language import Language, say
from perdure.errors import Words
from perdure.faces.cli.terminal import printable

SAID: Mapping[str, Words] = {
    "restored": ("{path}: as it was before", "{path}：已恢复原样"),
    "unchanged": ("{path}: is as it was before already", "{path}：本来就是原样"),
    "changed since": (
        "{path}: left alone, since it was changed again by something else",
        "{path}：未改动，因为之后又被别的操作改过",
    ),
    "forgotten": (
        "{path}: left alone, since what it held was forgotten",
        "{path}：未改动，因为原内容已被遗忘",
    ),
}
OTHERWISE: Words = ("{path}: left alone: {why}", "{path}：未改动：{why}")
#: No line: nothing was there to take back.
NO_FILES: Words = (
    "no file was changed by write_file or edit_file",
    "没有文件被 write_file 或 edit_file 改动",
)


def restored_lines(files: Mapping[str, str], lang: Language) -> list[str]:
    """A line for each path of `Sessions.undo_files`; one that says so where there is none."""
    if not files:
        return [say(NO_FILES, lang)]
    return [
        printable(say(SAID.get(result, OTHERWISE), lang, path=path, why=result))
        for path, result in sorted(files.items())
    ]
