"""The tokenizers whose vocabularies we have, and what is known of any other.

`splintr` carries the vocabularies inside its package: nothing is ever fetched, and one loads in
10 to 40 ms, at the first count. Its counts were compared with tiktoken's (o200k, cl100k, Qwen),
with Mistral's own tokenizer, and with the published files of Llama 3, DeepSeek, gpt-oss and Gemma
on 2,400 texts in 90 languages and every format a tool may show: equal on all of them, except that
Gemma's HTML tags, which are tokens of their own there, are counted as text, up to 12% high.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

#: By our name for them, which is also the package's.
ENCODINGS = (
    "o200k_base",
    "cl100k_base",
    "gpt-oss",
    "llama3",
    "llama2",
    "codellama",
    "qwen3",
    "deepseek_v3",
    "mistral_v1",
    "mistral_v2",
    "mistral_v3",
    "gemma2",
    "gemma3",
    "glm4",
    "kimi_k2",
    "phi4",
    "olmo2",
)

#: Qwen's published tokenizer composes characters (NFC) first; llama.cpp's version of it doesn't.
_COMPOSING = frozenset({"qwen3"})


def tokens_in(text: str, encoding: str) -> int:
    """Tokens of the text in an encoding of `ENCODINGS`. Special tokens written in it are text."""
    text = sendable(text)
    tokens = len(_tokenizer(encoding).encode_ordinary(text))
    if encoding in _COMPOSING and not unicodedata.is_normalized("NFC", text):
        composed = unicodedata.normalize("NFC", text)
        return max(tokens, len(_tokenizer(encoding).encode_ordinary(composed)))
    return tokens


def most_tokens(text: str) -> int:
    """Tokens that no byte-level tokenizer, and none that falls back to bytes, can exceed: one for
    each byte of UTF-8, and one for the space that SentencePiece puts in front.

    Four times too much for English, but it costs nothing: a prompt whose bound fits needs no
    tokenizer. Tokenizers that compose characters first (NFC) are covered by taking the longer form.
    """
    if text.isascii():
        return len(text) + 1 if text else 0
    sent = sendable(text)
    return 1 + max(len(sent.encode()), len(unicodedata.normalize("NFC", sent).encode()))


def sendable(text: str) -> str:
    """The text as it can be sent: a lone surrogate, which is no text, as U+FFFD, and two that make
    a character as that character. What is counted is what goes over the wire."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def as_shown(text: str) -> str:
    """Text of a tool or of the archive as it stands in a prompt: sendable, and NUL, which many endpoints
    refuse, as a character that shows it."""
    return sendable(text).replace("\x00", "\u2400")


@cache
def _tokenizer(encoding: str) -> Any:
    from splintr import Tokenizer

    return Tokenizer.from_pretrained(encoding)
