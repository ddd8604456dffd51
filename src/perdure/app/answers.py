"""What the person allowed for good in a workspace, by an answer: kept beside their own settings, where
nothing that comes with a checkout can write."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from perdure.errors import ConfigError, Words, why

UNREADABLE: Words = (
    "{path}, which holds what was allowed for good, cannot be read: {why}; mend it or remove it",
    "无法读取 {path}（其中保存着永久允许的操作）：{why}；请修复或删除它",
)
NO_TABLE: Words = ("it is no table of rules by folder", "它不是按文件夹排列的规则表")


class Answers:
    """The file `allowed.json` in the person's configuration ``folder``: rules by the path of a workspace."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "allowed.json"

    def of(self, workspace: Path) -> tuple[str, ...]:
        """The rules of a workspace. Raises `ConfigError` where the file isn't understood."""
        return tuple(self._read().get(str(workspace), ()))

    def add(self, workspace: Path, rules: Sequence[str]) -> None:
        """Keep rules, whole or not at all. Raises `ConfigError` and `OSError`."""
        kept = self._read()
        kept[str(workspace)] = list(dict.fromkeys([*kept.get(str(workspace), ()), *rules]))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # For the person alone, as `mkstemp` makes it.
        descriptor, beside = tempfile.mkstemp(dir=self.path.parent, prefix=".allowed")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(kept, file, ensure_ascii=False, indent=1)
            Path(beside).replace(self.path)
        except BaseException:
            with suppress(OSError):
                Path(beside).unlink()
            raise

    def _read(self) -> dict[str, list[str]]:
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(UNREADABLE, path=self.path, why=why(error)) from error
        except ValueError as error:
            raise ConfigError(UNREADABLE, path=self.path, why=NO_TABLE) from error
        rules = kept.values() if isinstance(kept, dict) else [None]
        if not all(isinstance(some, list) and all(isinstance(rule, str) for rule in some) for some in rules):
            raise ConfigError(UNREADABLE, path=self.path, why=NO_TABLE)
        return dict(kept)
