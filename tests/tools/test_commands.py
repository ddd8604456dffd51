"""What a command would run, told from its text: nothing runs that wasn't told, or told to be unknown."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.tools.commands import UNKNOWN, WRAPPERS, Part, parts_of


def _nested(times: int) -> str:
    """`ls` in so many texts, one in the other."""
    command = "ls"
    for _ in range(times):
        command = f"bash -c {shlex.quote(command)}"
    return command


def told(command: str) -> list[tuple[str | None, ...]]:
    return [part.words for part in parts_of(command) if part.words and not part.why]


def unknown(command: str) -> bool:
    return any(part.why for part in parts_of(command))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git log --oneline", [("git", "log", "--oneline")]),
        ("ls && rm x || cat y; pwd & id", [("ls",), ("rm", "x"), ("cat", "y"), ("pwd",), ("id",)]),
        ("ls | xargs rm", [("ls",), ("xargs", "rm")]),
        ("(cd a; ls)", [("cd", "a"), ("ls",)]),
        ("{ ls; rm x; }", [("ls",), ("rm", "x")]),
        ("echo $(rm x) `cat y`", [("echo", UNKNOWN, UNKNOWN), ("rm", "x"), ("cat", "y")]),
        ('echo "a $(rm x)"', [("echo", UNKNOWN), ("rm", "x")]),
        ("echo ${a:-$(rm x)}", [("echo", UNKNOWN), ("rm", "x")]),
        ("diff <(ls a) <(ls b)", [("diff", UNKNOWN, UNKNOWN), ("ls", "a"), ("ls", "b")]),
        ("cat <<E\n$(rm x)\nE", [("cat",), ("rm", "x")]),
        ("cat <<< $(rm x)", [("cat",), ("rm", "x")]),
        ("f() { rm x; }; f", [("rm", "x"), ("f",)]),
        ("if a; then b; elif c; then d; else e; fi", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("for i in $(ls); do rm $i; done", [("ls",), ("rm", UNKNOWN)]),
        ("while read l; do rm x; done < f", [("read", "l"), ("rm", "x")]),
        ("case $x in a) rm b;; *) ls $(id);; esac", [("rm", "b"), ("ls", UNKNOWN), ("id",)]),
        ("! grep x y", [("grep", "x", "y")]),
        ("A=1 git log", [("A=1", "git", "log")]),
        ("A=$(rm x) git log", [("A=", "git", "log"), ("rm", "x")]),
        ("bash -c 'ls && rm x'", [("bash", "-c", "ls && rm x"), ("ls",), ("rm", "x")]),
        ("eval 'rm x'", [("eval", "rm x"), ("rm", "x")]),
        ("'rm' x", [("rm", "x")]),
        ("r\\m x", [("rm", "x")]),
        ("r''m \"x y\"", [("rm", "x y")]),
        ('echo "a\\"b" \'c"d\'', [("echo", 'a"b', 'c"d')]),
        ("ls # rm x", [("ls",)]),
        ("git commit \\\n  -m x", [("git", "commit", "-m", "x")]),
        ("rm *.py ~/x {a,b} $y", [("rm", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)]),
    ],
)
def test_each_part_is_told_wherever_it_stands(command: str, words: list[tuple[str | None, ...]]) -> None:
    assert told(command) == words


@pytest.mark.parametrize(
    "command",
    [
        "$X a",
        "/bin/r? x",
        "{rm,x}",
        "~/rm x",
        "$'rm' x",
        "$(echo rm) x",
        "echo 'open",
        "if true",
        "bash x.sh",
        "bash <<E\nrm x\nE",
        "curl x | sh",
        "bash -c $X",
        "source x",
        ". x",
        "eval $X",
        "trap 'rm x' EXIT",
        "alias ls=rm",
        "PATH=/evil",
        "export PATH=/evil",
        "declare -x LD_PRELOAD=x",
        "for PATH in /evil; do ls; done",
        "https_proxy=x",
        "ls <> a",
        "ls > a b",
        "unset PATH",
        "[[ -v a[0] ]]",
        "((i++))",
        "let 'a[$(rm x)]'",
        "echo $((a[0]))",
        "a[$(rm x)]=1",
        "echo ${x@P}",
        "cat < /dev/tcp/1.2.3.4/80",
        "ls\u00a0-l",
        "r\\\nm x",
        "ls\x00rm",
        "ls\rrm",
        "ls \u202e x",
        "x" * 200_000,
        _nested(6),
    ],
)
def test_what_can_not_be_told_is_told_to_be_unknown(command: str) -> None:
    assert unknown(command)


@pytest.mark.parametrize(
    ("command", "writes"),
    [
        ("ls > a", [("a",)]),
        ("ls >> a", [("a",)]),
        ("ls 2> /tmp/a", [("/tmp/a",)]),
        ("ls &> a", [("a",)]),
        ("ls >| $x", [(UNKNOWN,)]),
        ("ls >& a", [("a",)]),
        ("> a", [("a",)]),
        ("{ ls; } > a", [("a",)]),
        ("ls > /dev/null 2>&1 < in", []),
        ("ls >&2", []),
        ("cat <<E > a\nx\nE", [("a",)]),
    ],
)
def test_files_that_are_written_by_redirection_are_told(
    command: str, writes: list[tuple[str | None]]
) -> None:
    assert [part.writes for part in parts_of(command) if part.writes] == writes


TOKENS = st.sampled_from(
    [
        *("aa", "bb", "cc", "aa bb", "'aa'", '"bb"', "a\\a", "c''c", "$'aa'", "a{a,b}", "?a", "b*"),
        *(";", "&&", "||", "|", "&", "\n", "!", "(", ")", "{", "}", "$(", "`", "<(", "'", '"', "\\", "\\\n"),
        *(
            "if",
            "then",
            "else",
            "fi",
            "while",
            "do",
            "done",
            "for x in",
            "case x in",
            "x)",
            ";;",
            "esac",
            "time",
        ),
        *(
            "eval",
            "command",
            "exec",
            "bash -c",
            "trap",
            "coproc",
            "function f",
            "f()",
            "f",
            "x=aa",
            "$x",
            "${x}",
        ),
        *(
            "<<E\n",
            "\nE\n",
            "<<'E'\n",
            "<<<",
            "> o",
            "< o",
            "2>&1",
            "[[ -v",
            "]]",
            "((",
            "))",
            "$((",
            "a[$(aa)]",
        ),
        *(
            "${x:-",
            "${x@P}",
            "${x/",
            "#",
            "--",
            "-c",
            "\t",
            "\r",
            "=",
            "\u00a0",
            "alias b=aa",
            "shopt -s expand_aliases",
        ),
    ]
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash isn't installed")
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(TOKENS, st.sampled_from([" ", " ", ""])), min_size=1, max_size=9))
@example([("x=aa", "\n"), ("$x", "")])
@example([("> o", " "), ("cc", "")])
@example([("exec", " "), ("< o", " "), ("aa", "")])
@example([("echo ${x:-", ""), ("$(aa)", ""), ("}", "")])
def test_nothing_runs_that_was_not_told(tmp_path: Path, tokens: list[tuple[str, str]]) -> None:
    command = "".join(f"{token}{blank}" for token, blank in tokens)
    programs = tmp_path / "bin"
    # What runs on in the background writes to its own.
    log = tmp_path / f"log{len(list(tmp_path.iterdir()))}"
    programs.mkdir(exist_ok=True)
    for name in ("aa", "bb", "cc"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} >> "$LOG"\n')
        (programs / name).chmod(0o755)
    log.write_text("")
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    with suppress(subprocess.TimeoutExpired, ValueError):
        subprocess.run(
            [shutil.which("bash") or "bash", "-c", command],
            cwd=work,
            env={"PATH": str(programs), "LOG": str(log)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=3,
            check=False,
        )
    parts = parts_of(command)
    if any(part.why for part in parts):
        return
    ran = set(log.read_text().split())
    assert ran <= {name for part in parts for name in _may_run(part)}


def _may_run(part: Part) -> list[str]:
    """What the words of a part name: its program, and what a wrapper runs, which may be anything where a word
    isn't known."""
    if part.command and part.command[0] in WRAPPERS and UNKNOWN in part.command:
        return ["aa", "bb", "cc"]
    return [word for word in part.words if word]


@given(st.text(max_size=60))
def test_any_text_has_parts(text: str) -> None:
    assert parts_of(text)
