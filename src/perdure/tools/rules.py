"""Rules of what tools may do, and whether a call fits one. Pure.

    bash                  every call of the tool; `files__*` every tool whose name begins so
    bash(git log *)       commands whose words are these, `*` for any that follow; `git * main`: one word
    edit_file(src/**)     files of the workspace, as in a .gitignore; /etc/** and ~/** outside it

A compound command is judged by each of its parts. Whether a rule fits can be unknown, since what a command
does can't always be told from its text: what allows must fit for certain, what denies or asks may.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perdure.errors import ConfigError, Words
from perdure.tools.commands import HARMLESS, UNKNOWN, WRAPPERS, Part, Word, parts_of
from perdure.tools.contract import Touch

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NO_RULE: Words = (
    "{rule!r} is no rule: name a tool, as bash, and perhaps in brackets a command, as bash(git log *), or "
    "files, as edit_file(src/**)",
    "{rule!r} 不是规则：请写工具名，如 bash，或在括号中写命令，如 bash(git log *)，"
    "或文件，如 edit_file(src/**)",
)
_RULE = re.compile(r"\s*(?P<tool>[A-Za-z0-9_*-]{1,64})\s*(?:\((?P<what>.*)\))?\s*", re.DOTALL)

#: Whether a rule fits a call; `maybe`: what the call does can't be told.
Fit = Literal["yes", "maybe", "no"]

#: Tools whose rules on files say which files a command may write by `>`.
WRITING = ("write_file", "edit_file")


@dataclass(frozen=True, slots=True)
class Rule:
    """``text`` as it was written; ``tool`` a name, `*` in it for anything; ``what``: the pattern of a command
    or of files, None for every call."""

    text: str
    tool: str
    what: str | None

    def names(self, tool: str) -> bool:
        return fnmatchcase(tool, self.tool)


def rule_of(text: str) -> Rule:
    """Raises `ConfigError` for what is none."""
    match = _RULE.fullmatch(text)
    if match is None or (match["what"] is not None and not match["what"].strip()):
        raise ConfigError(NO_RULE, rule=text)
    return Rule(text.strip(), match["tool"], match["what"].strip() if match["what"] is not None else None)


def rules_of(texts: Iterable[str]) -> tuple[Rule, ...]:
    return tuple(dict.fromkeys(rule_of(text) for text in texts))


def forbidding(rules: Sequence[Rule], tool: str, touch: Touch) -> tuple[Fit, str]:
    """Whether one of the rules fits any part of a call, and which: for rules that deny or ask."""
    maybe = ""
    for rule in rules:
        fit: Fit = "no"
        if rule.names(tool):
            fit = "yes" if rule.what is None else _fits_any(rule.what, touch)
        elif touch.command is not None and any(map(rule.names, WRITING)):
            fit = _fits_written(rule.what, touch.command)
        if fit == "yes":
            return "yes", rule.text
        if fit == "maybe":
            maybe = maybe or rule.text
    return ("maybe", maybe) if maybe else ("no", "")


def allowing(rules: Sequence[Rule], tool: str, touch: Touch) -> bool:
    """The rules together allow each part of a call, for certain."""
    named = [rule for rule in rules if rule.names(tool)]
    if any(rule.what is None for rule in named):
        return True
    if touch.command is not None:
        files = [rule for rule in rules if any(map(rule.names, WRITING)) and rule.what is not None]
        return all(_part_allowed(part, named, files) for part in parts_of(touch.command))
    patterns = [str(rule.what) for rule in named]
    return bool(touch.paths) and all(
        any(path_fits(pattern, path) for pattern in patterns) for path in touch.paths
    )


def not_allowed(rules: Sequence[Rule], tool: str, command: str) -> tuple[Part, ...]:
    """The parts of a command that the rules don't allow."""
    named = [rule for rule in rules if rule.names(tool)]
    files = [rule for rule in rules if any(map(rule.names, WRITING)) and rule.what is not None]
    return tuple(part for part in parts_of(command) if not _part_allowed(part, named, files))


def _part_allowed(part: Part, rules: Sequence[Rule], files: Sequence[Rule]) -> bool:
    if part.writes:
        # A relative path hangs on where the command is by then, and `..` on where links lead.
        whole = [path for path in part.writes if path is not UNKNOWN and Path(path).is_absolute()]
        paths = [path for path in whole if ".." not in Path(path).parts]
        fits = all(any(path_fits(str(rule.what), path) for rule in files) for path in paths)
        return bool(paths) and len(paths) == len(part.writes) and fits
    if part.why:
        return False
    if part.words and part.words[0] in HARMLESS:
        return True
    return any(rule.what is not None and words_fit(rule.what, part.words) == "yes" for rule in rules)


def _fits_any(what: str, touch: Touch) -> Fit:
    if touch.command is None:
        return "yes" if any(path_fits(what, path) for path in touch.paths) else "no"
    fits = [_part_fits(what, part) for part in parts_of(touch.command)]
    return "yes" if "yes" in fits else "maybe" if "maybe" in fits else "no"


def _part_fits(what: str, part: Part) -> Fit:
    """Whether a command that is forbidden may be this one, or one that it runs."""
    if part.writes:
        return "no"
    command = part.command
    tried = [command]
    name = _program(command)
    if name in WRAPPERS:
        tried += [command[at:] for at in range(1, len(command))]
    fits = [words_fit(what, each, loosely=True) for each in tried]
    if "yes" in fits:
        return "yes"
    return "maybe" if "maybe" in fits or part.why else "no"


def _fits_written(what: str | None, command: str) -> Fit:
    """Whether a command writes, by `>`, a file that must not be written."""
    fit: Fit = "no"
    for part in parts_of(command):
        for path in part.writes:
            if what is None or (path is not UNKNOWN and path_fits(what, path)):
                return "yes"
            fit = "maybe"
    return fit


def _program(command: Sequence[Word]) -> str:
    return (command[0] or "").rpartition("/")[2] if command else ""


def words_fit(pattern: str, words: Sequence[Word], *, loosely: bool = False) -> Fit:
    """Whether a command is what a pattern says, word by word. ``loosely``: whatever the case, and from
    whatever folder, its program is."""
    wanted = _words(pattern)
    there = list(words)
    if loosely and there and there[0] is not UNKNOWN:
        there[0] = there[0].casefold()
        program = wanted[0].casefold() if wanted else ""
        if "/" not in program:
            there[0] = there[0].rpartition("/")[2]
        wanted = (program, *wanted[1:])
    open_ended = bool(wanted) and wanted[-1] == "*"
    fixed = wanted[:-1] if open_ended else wanted
    if len(there) < len(fixed) or (len(there) > len(fixed) and not open_ended):
        # One unknown word may stand for several, or for none.
        return "maybe" if UNKNOWN in there and _so_far(fixed, there) else "no"
    fits = [_word_fits(one, word) for one, word in zip(fixed, there, strict=False)]
    return "no" if "no" in fits else "maybe" if "maybe" in fits else "yes"


def _so_far(wanted: Sequence[str], words: Sequence[Word]) -> bool:
    """Up to the first word that is unknown, all fit."""
    for one, word in zip(wanted, words, strict=False):
        if word is UNKNOWN:
            return True
        if _word_fits(one, word) == "no":
            return False
    return True


def _word_fits(pattern: str, word: Word) -> Fit:
    if pattern == "*":
        return "yes"
    if word is UNKNOWN:
        return "maybe"
    return "yes" if fnmatchcase(word, pattern) else "no"


@lru_cache(maxsize=512)
def _words(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(pattern))
    except ValueError:  # an open quote is a quote
        return tuple(pattern.split())


def path_fits(pattern: str, path: str) -> bool:
    """Whether a path, as a `Touch` has it, is one of those that a pattern of files means."""
    pattern = pattern.removeprefix("./")
    if pattern.startswith("~"):
        pattern = str(Path(pattern).expanduser()) if pattern in {"~"} or pattern.startswith("~/") else pattern
    outside = pattern.startswith("/")
    if outside != Path(path).is_absolute():
        return False
    return bool(_spec(pattern).match_file(path.lstrip("/") or "."))


@lru_cache(maxsize=512)
def _spec(pattern: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines([pattern])
    except ValueError:
        raise ConfigError(NO_RULE, rule=pattern) from None
