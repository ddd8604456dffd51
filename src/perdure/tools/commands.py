"""What a shell command would run, part by part, as far as its text tells. Pure.

A command line is read by the grammar that editors use (tree-sitter-bash), and each simple command in it,
wherever it stands (behind `&&`, in a pipe, in `$(...)`, in a function, in a here-document), is a part. What
can't be known from the text is said to be unknown, never guessed: whoever judges must ask about it then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

#: A word whose value isn't in the text: a variable, a pattern of files, braces.
UNKNOWN = None
Word = str | None


def names(text: str) -> frozenset[str]:
    """The names in a text, with blanks between them."""
    return frozenset(text.split())


#: Programs that run the command that follows among their arguments.
WRAPPERS = names(
    "sudo doas env nohup nice ionice time timeout xargs parallel command builtin exec setsid stdbuf chroot "
    "coproc watch find strace ltrace unshare nsenter script flock chrt taskset su runuser busybox entr"
)
#: Programs that run what they are given as a text, a file or their input.
SHELLS = names("bash sh dash zsh ksh fish ash rbash")
#: What they can be given a text by; `-lc` and the like too.
_TEXT_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
#: Builtins that run a text or a file in this very shell, or change what a later word means.
_OF_THE_SHELL = names("eval source . trap alias unalias enable hash bind complete mapfile readarray let")
#: They run nothing and write nothing, whatever they are given: `test` and `printf` aren't among them, since
#: `test -v 'a[$(x)]'` runs x, and `printf -v` sets a variable.
HARMLESS = frozenset({"cd", "echo", "false", "pwd", "true", ":"})
#: Files that may be written by `>` without anything being kept.
_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})

#: Bash sees no blank in these where a grammar may, and the other way round.
_ODD = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\u0085\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]"
)
#: A line that goes on in the middle of a word.
_SPLIT_WORD = re.compile(r"(?<![ \t])\\\n")
#: Bytes of a command that is still read.
LONGEST = 100_000
#: Texts in texts (`bash -c "bash -c ..."`).
DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Part:
    """One simple command: its words, assignments before it first. ``writes``: files that it is redirected
    into, `UNKNOWN` among them where one isn't known. ``why``: what makes it unknown what it does, empty where
    its words say it."""

    words: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    why: str = ""

    @property
    def command(self) -> tuple[Word, ...]:
        """The words from the command's name on."""
        first = next(
            (at for at, word in enumerate(self.words) if word is UNKNOWN or not _ASSIGNS.match(word)), 0
        )
        return self.words[first:]

    @property
    def assigns(self) -> bool:
        """It sets variables for the command, or for those behind it."""
        return bool(self.words) and self.words[0] is not UNKNOWN and bool(_ASSIGNS.match(self.words[0]))


#: A variable that no program looks at, and no index that could run something.
_PLAIN = re.compile(r"(?!(?:https?|ftp|all|no)_proxy)[a-z_][a-z0-9_]*\+?=")
_ASSIGNS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")


@lru_cache(maxsize=256)
def parts_of(command: str, deep: int = 0) -> tuple[Part, ...]:
    """The parts of a command line, at least one; one that is wholly unknown where it can't be read. Never
    raises."""
    if deep > DEEPEST or len(command.encode("utf-8", "replace")) > LONGEST:
        return (Part(why="it is too long, or a text in a text"),)
    if (
        _ODD.search(command)
        or _SPLIT_WORD.search(command)
        or (not command.isprintable() and _surrogates(command))
    ):
        return (Part(why="it holds characters that hide what it is"),)
    tree = _parser().parse(command.encode())
    if tree.root_node.has_error:
        return (Part(why="it can't be read as a command"),)
    parts = tuple(_parts(tree.root_node, deep))
    return parts or (Part(words=(":",)),)


def _surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


#: Nodes that only hold others, in which commands are looked for.
_HOLDING = names(
    "program list pipeline redirected_statement variable_assignments subshell compound_statement "
    "if_statement elif_clause else_clause while_statement do_group case_statement case_item negated_command "
    "function_definition command_substitution process_substitution string concatenation heredoc_body "
    "herestring_redirect word raw_string string_content variable_name heredoc_start heredoc_end "
    "heredoc_content extglob_pattern regex comment simple_expansion number special_variable_name "
    "ansi_c_string translated_string command_name file_descriptor"
)


def _parts(node: Node, deep: int) -> Iterator[Part]:
    match node.type:
        case "command":
            yield from _of_command(node, deep)
        case "variable_assignment":
            if not _PLAIN.match(_text(node)):
                yield Part(words=(_value(node),), why="it sets a variable")
            yield from _inner(node, deep)
        case "for_statement":
            names = (_text(child) for child in node.children if child.type == "variable_name")
            if not all(_PLAIN.match(f"{name}=") for name in names):
                yield Part(why="it sets a variable")
            yield from _inner(node, deep)
        case "declaration_command" | "unset_command":
            yield Part(words=(_text(node.children[0]), UNKNOWN), why="it sets a variable")
            yield from _inner(node, deep)
        case "expansion":
            # `${x@P}` runs what stands in x.
            if any(child.type == "@" or "@" in _text(child) for child in node.children if not child.is_named):
                yield Part(why="what it puts in may run something")
            yield from _inner(node, deep)
        case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
            yield from _redirect(node)
            yield from _inner(node, deep)
        case _ if node.type in _HOLDING or not node.is_named:
            yield from _inner(node, deep)
        case _:
            # Arithmetic and `[[ ]]` run what stands in an index of a variable; and what isn't known here.
            yield Part(why=f"what {node.type.replace('_', ' ')} does can't be told")
            yield from _inner(node, deep)


def _inner(node: Node, deep: int) -> Iterator[Part]:
    for child in node.children:
        yield from _parts(child, deep)


def _redirect(node: Node) -> Iterator[Part]:
    """What a redirection writes to; reading writes nothing, unless bash makes a connection of it."""
    if node.type != "file_redirect":
        return
    if sum(child.is_named and child.type != "file_descriptor" for child in node.children) > 1:
        # The grammar takes the words behind a redirection for more files; bash, for the command's own.
        yield Part(why="words stand behind a redirection")
    signs = {_text(child) for child in node.children if not child.is_named}
    target = node.children[-1]
    path = _value(target) if target.is_named and target.type != "file_descriptor" else UNKNOWN
    if target.type in {"number", "file_descriptor"} or path == "-":
        return  # another descriptor, or one that is closed
    if path is not UNKNOWN and path.startswith(("/dev/tcp/", "/dev/udp/")):
        yield Part(why="it makes a connection")
    elif path not in _NOWHERE and (
        signs & {">", ">>", ">|", "&>", "&>>", "<>"} or (">&" in signs and not (path or "x").isdecimal())
    ):
        yield Part(writes=(path,))


def _of_command(node: Node, deep: int) -> Iterator[Part]:
    words: list[Word] = []
    for child in node.children:
        match child.type:
            case "command_name":
                words += [_value(each) for each in child.children]
            case "file_redirect" | "heredoc_redirect" | "herestring_redirect":
                continue
            case _ if child.is_named:
                words.append(_value(child))
    part = Part(tuple(words))
    yield from _judged(part, deep)
    for child in node.children:
        # What is set for this command alone is among its words.
        yield from _inner(child, deep) if child.type == "variable_assignment" else _parts(child, deep)


def _judged(part: Part, deep: int) -> Iterator[Part]:
    """The part, with what is inside its words where its program runs that."""
    command = part.command
    name = command[0] if command else UNKNOWN
    if name is UNKNOWN or not name:
        yield Part(part.words, why="which program it runs is not in the text")
        return
    base = name.rpartition("/")[2]
    if base in SHELLS or base == "eval":
        yield from _texts(part, base, deep)
    elif base in _OF_THE_SHELL:
        yield Part(part.words, why=f"what {base} does hangs on what isn't in the text")
    else:
        yield part


def _texts(part: Part, base: str, deep: int) -> Iterator[Part]:
    arguments = part.command[1:]
    if base == "eval":
        texts = arguments
    else:
        options = [at for at, word in enumerate(arguments) if word and _TEXT_OPTION.fullmatch(word)]
        texts = arguments[options[0] + 1 : options[0] + 2] if options else ()
    if not texts or UNKNOWN in texts:
        yield Part(part.words, why=f"what {base} runs is not in the text")
        return
    yield part
    yield from parts_of(" ".join(word or "" for word in texts), deep + 1)


def _value(node: Node) -> Word:
    """The word that a node stands for, quotes taken off; `UNKNOWN` where the text doesn't say it."""
    match node.type:
        case "word" | "number" | "variable_name" | "special_variable_name" | "test_operator":
            value = _unescaped(_text(node))
        case "raw_string":
            value = _text(node)[1:-1]
        case "string":
            value = _quoted(node)
        case "concatenation":
            value = _joined(node)
        case "variable_assignment":
            name, _, rest = _text(node).partition("=")
            # Its value matters less than that it sets something.
            given = _value(node.children[-1]) if rest and len(node.children) > 2 else rest
            value = f"{name}={given or ''}"
        case _:
            value = UNKNOWN
    return value


def _quoted(node: Node) -> Word:
    if any(child.type not in {'"', "string_content"} for child in node.children):
        return UNKNOWN
    # The text between the quotes: blanks at its ends are in no node.
    inside = _text(node)[1:-1]
    return re.sub(r'\\([\\"$`\n])', lambda found: "" if found[1] == "\n" else found[1], inside)


def _joined(node: Node) -> Word:
    pieces = [_value(child) for child in node.children]
    braces = any(_text(child).startswith("{") for child in node.children)
    return UNKNOWN if braces or UNKNOWN in pieces else "".join(piece or "" for piece in pieces)


def _unescaped(text: str) -> Word:
    """A bare word as bash reads it; `UNKNOWN` where it stands for files, a home, or several words."""
    bare = re.sub(r"\\.", "", text, flags=re.DOTALL)
    if re.search(r"[*?\[\]{}~$`!]|^=", bare):
        return UNKNOWN
    return re.sub(r"\\(.)", lambda found: "" if found[1] == "\n" else found[1], text, flags=re.DOTALL)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
