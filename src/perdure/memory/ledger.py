"""The ledger: exact literals of what left the window, kept by code and not by a model.

Summaries lose them first (in one published measurement paths survived to 9.8%, numbers to 1.9%,
commands to 0.2%), and an agent needs them to make its next call. A literal is worth what its kind
is worth, more where the person said it or a call used it, and less as the conversation goes on;
what is said again gains. What the window still shows isn't listed.

The worth of a kind and the half-life were fitted on half of the tau-bench airline transcripts
(`bench/tau.py`): in a third of the window the ledger holds what 98% of the next calls need at 1,024
tokens and more than 99% at 2,048.
"""

from __future__ import annotations

import re

#: Worth of a literal by its kind.
WORTH = {
    "url": 3.0,
    "path": 3.0,
    "identifier": 3.0,
    "date": 2.0,
    "name": 1.5,
    "word": 1.0,
    "code": 0.6,
    "quantity": 0.6,
    "number": 0.15,
    "time": 0.05,
}
#: Worth by where it stands: a person's words, a call's arguments, what a tool showed.
BY_PERSON, BY_MODEL, BY_TOOL = 3.0, 2.0, 1.0
#: Entries after which a literal is worth half, and what an earlier mention adds.
HALF_LIFE, AGAIN = 12, 0.35
#: Literals that are remembered, listed or not; and characters of the longest.
MOST_LITERALS, LONGEST = 600, 120

_LITERALS = re.compile(
    r"(?P<url>https?://[^\s\"'<>)\]}，。]+)"
    r"|(?P<mail>[\w.+-]+@[\w-]+\.[\w.-]*\w)"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?:T[\d:.]+Z?)?)"
    r"|(?P<time>\d{1,2}:\d{2}(?::\d{2})?)"
    r"|(?P<path>(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*[\w@+-]|[\w-]+\.[A-Za-z][A-Za-z0-9]{0,4}\b(?!\())"
    r"|(?P<version>v?\d+\.\d+(?:\.\d+)+[\w.-]*)"
    r"|(?P<quantity>[$€£¥]\s?\d[\d,]*(?:\.\d+)?|\d[\d,]*(?:\.\d+)?\s?(?:%|ms|s|min|h|[kKMGT]i?B|kg|km|tokens?)\b)"
    r"|(?P<identifier>[A-Za-z_][A-Za-z0-9_]*[-_\d][A-Za-z0-9_-]*|\d+[A-Za-z][\w-]*)"
    r"|(?P<number>\d[\d,]*(?:\.\d+)?)"
    r"|(?P<capitals>\b[A-Z]{2,}\b)"
    r"|(?P<name>\b[A-Z][a-z]+\b)",
    re.ASCII,
)
