"""Markdown that is still being written: which of it is finished, so that it can be printed for good. Pure."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def finished(text: str) -> tuple[str, str]:
    """The blocks that nothing can change any more, and the rest: cut behind a blank line that doesn't stand
    in a fenced code block. Joined, they are the text."""
    fence = ""
    at = cut = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found and ("`" not in found[2] or found[1][0] == "~"):
            fence = found[1]
        elif not line.strip() and line.endswith("\n"):
            cut = at
    return text[:cut], text[cut:]
