"""The agents of `agents.py`, each behind the same two words: say something, close."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).parent
PI = HERE / "peers/node_modules/@mariozechner/pi-coding-agent"
#: A name whose tokenizer is known, so that an agent can count as the endpoint does.
MODEL = "gpt-4o"
#: Seconds after which a turn is given up.
TIMEOUT = 120.0


class Agent(Protocol):
    """An agent in one session that goes on."""

    def say(self, text: str) -> str:
        """One turn, to its end; what went wrong by the agent's own account, or nothing."""
        ...

    def close(self) -> None: ...


class Place:
    """A folder of the agent's own: home, settings, sessions, and the workspace with the files. What
    the person has set, or has set up, is neither seen nor touched."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        self.home, self.workspace = folder, workspace
        self.home.mkdir(parents=True)
        kept = {
            name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "TMPDIR") if name in os.environ
        }
        homes = {name: str(folder / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}
        self.environment = {**kept, **homes, "HOME": str(folder)}

    def run(self, command: Sequence[str]) -> str:
        """A command to its end; what went wrong, or nothing."""
        try:
            done = subprocess.run(
                command,
                cwd=self.workspace,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {TIMEOUT:.0f} s"
        return f"exit code {done.returncode}: {_last_words(done.stderr)}" if done.returncode else ""

    def open(self, command: Sequence[str]) -> Lines:
        """A command that is kept open."""
        return Lines(command, self.workspace, self.environment)


def _last_words(said: str) -> str:
    """The last line that says something: a traceback's, or the message itself."""
    spoken = [line.strip(" |") for line in said.splitlines() if any(map(str.isalpha, line))]
    return spoken[-1][:300] if spoken else "nothing said"


class Lines:
    """A process spoken to in lines of JSON."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def send(self, value: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """The next line. Raises `EOFError` where the process ended, or was ended after `TIMEOUT`."""
        assert self._process.stdout
        watch = threading.Timer(TIMEOUT, self._process.kill)
        watch.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watch.cancel()
        if not line:
            raise EOFError(f"the process ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()


class PerdureCommand:
    """`perdure run`, a process a turn."""

    def __init__(self, place: Place, base_url: str, window: int) -> None:
        self._place = place
        beside = Path(sys.executable).with_name("perdure")
        self._command = [
            *([str(beside)] if beside.exists() else [sys.executable, "-m", "perdure.faces.cli.main"]),
            "run", "--session", "bench", "--yes", "--quiet", "--base-url", base_url, "--model", MODEL,
            "--context-window", str(window), "--store", str(place.home / "sessions.db"),
        ]  # fmt: skip

    def say(self, text: str) -> str:
        return self._place.run([*self._command, text])

    def close(self) -> None:
        pass


class PerdureLibrary:
    """`perdure.Agent`, kept open."""

    def __init__(self, place: Place, base_url: str, window: int) -> None:
        settings = {
            "base_url": base_url,
            "model": MODEL,
            "context_window": window,
            "store": str(place.home / "sessions.db"),
            "workspace": str(place.workspace),
            "yes": True,
        }
        script = str(HERE / "agents_library.py")
        self._lines = place.open([sys.executable, script, json.dumps(settings)])

    def say(self, text: str) -> str:
        try:
            self._lines.send(text)
            return str(self._lines.receive())
        except (OSError, EOFError) as error:
            return f"{type(error).__name__}: {error}"

    def close(self) -> None:
        self._lines.close()


def pi_is_missing() -> str:
    """Why pi can't take part, or nothing."""
    if shutil.which("node") is None:
        return "pi is left out: there is no Node.js here."
    if not (PI / "dist/cli.js").exists():
        install = "npm install --prefix bench/peers"
        return f"pi is left out: it isn't installed ({install})."
    return ""


def pi_version() -> str:
    return str(json.loads((PI / "package.json").read_text(encoding="utf-8"))["version"])


def _pi_command(place: Place, base_url: str, window: int, compaction: Mapping[str, int]) -> list[str]:
    """pi with a provider and settings of its own; nothing is asked of the network beside the endpoint."""
    model = {"id": MODEL, "contextWindow": window, "maxTokens": window // 8}
    provider = {"baseUrl": base_url, "api": "openai-completions", "apiKey": "none", "models": [model]}
    settings = {"compaction": dict(compaction)} if compaction else {}
    folder = place.home / "pi"
    folder.mkdir()
    (folder / "models.json").write_text(json.dumps({"providers": {"bench": provider}}), encoding="utf-8")
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    place.environment |= {"PI_CODING_AGENT_DIR": str(folder), "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
    return ["node", str(PI / "dist/cli.js"), "--provider", "bench", "--model", MODEL]


class PiCommand:
    """`pi --print`, a process a turn."""

    def __init__(self, place: Place, base_url: str, window: int, compaction: Mapping[str, int]) -> None:
        self._place = place
        command = _pi_command(place, base_url, window, compaction)
        self._command = [*command, "--session-dir", str(place.home / "sessions"), "--continue", "--print"]

    def say(self, text: str) -> str:
        return self._place.run([*self._command, text])

    def close(self) -> None:
        pass


class PiOpen:
    """`pi --mode rpc`, kept open."""

    def __init__(self, place: Place, base_url: str, window: int, compaction: Mapping[str, int]) -> None:
        command = _pi_command(place, base_url, window, compaction)
        self._lines = place.open([*command, "--session-dir", str(place.home / "sessions"), "--mode", "rpc"])

    def say(self, text: str) -> str:
        """A turn is over when pi is at rest: after its answer it may compact, and then try again."""
        try:
            self._lines.send({"type": "prompt", "message": text})
            return self._until_at_rest()
        except (OSError, EOFError) as error:
            return f"{type(error).__name__}: {error}"

    def close(self) -> None:
        self._lines.close()

    def _until_at_rest(self) -> str:
        ended = again = False
        wrong = ""
        while True:
            event = self._lines.receive()
            match event.get("type"):
                case "response" if not event.get("success"):
                    return str(event.get("error"))
                case "response" if event.get("command") == "get_state":
                    if ended and not again and not event["data"]["isCompacting"]:
                        return wrong
                case "agent_start":
                    ended = again = False
                case "agent_end":
                    ended = True
                    last = event["messages"][-1] if event["messages"] else {}
                    wrong = str(last.get("errorMessage") or "") if last.get("stopReason") == "error" else ""
                    self._lines.send({"type": "get_state"})
                case "compaction_end" | "auto_retry_start":
                    again = event.get("willRetry", event["type"] == "auto_retry_start")
                    wrong = str(event.get("errorMessage") or wrong)
                    self._lines.send({"type": "get_state"})
