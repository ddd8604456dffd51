"""The `perdure` command as a person or a script runs it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type]


@dataclass
class Command:
    """``base_url`` None means the embedded model."""

    folder: Path
    base_url: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        environment |= {"HOME": str(self.folder), "LANG": "C.UTF-8"}
        if self.base_url:
            environment |= {"OPENAI_BASE_URL": self.base_url, "PERDURE_MODEL": "scripted"}
        return environment

    @property
    def workspace(self) -> Path:
        workspace = self.folder / "workspace"
        workspace.mkdir(exist_ok=True)
        return workspace

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "perdure.faces.cli.main", *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            cwd=self.workspace,
            env=self.environment,
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perdure.faces.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.workspace,
            env=self.environment,
            **options,
        )
