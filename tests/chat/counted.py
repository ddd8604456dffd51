"""Texts of many kinds with their true counts.

The counts are the reference implementations': tiktoken's (o200k, cl100k, and the published Qwen
file, whose larger count with and without NFC stands here), SentencePiece's on Mistral's and Llama's
files, and the `tokenizers` package's on the published files of Llama 3, DeepSeek, gpt-oss and Gemma.
The texts in other languages are the first article of the Universal Declaration of Human Rights,
which is free of copyright.
"""

from __future__ import annotations

import json
from pathlib import Path

_COUNTED = json.loads(Path(__file__).with_name("counted_texts.json").read_text(encoding="utf-8"))

#: Kind to text.
TEXTS: dict[str, str] = {kind: counted["text"] for kind, counted in _COUNTED.items()}
#: Kind to encoding to tokens.
COUNTS: dict[str, dict[str, int]] = {kind: counted["tokens"] for kind, counted in _COUNTED.items()}
