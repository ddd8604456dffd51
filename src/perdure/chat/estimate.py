"""Tokens of a text for a model whose tokenizer isn't known: an estimate that is meant to be high.

Not a quarter of the characters: what a character costs depends on its script, and tokenizers
differ by a factor of three on some. The weights were set so that the estimate is at or above the
count of every current tokenizer measured (o200k, cl100k, Llama 3, Qwen 3, DeepSeek V3, Mistral v3,
GLM 4, Kimi K2) on every kind of text in `bench/tokens.py`, which prints the ratios.
"""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"(?P<blob>(?=[A-Za-z+/=]{0,40}[0-9])[A-Za-z0-9+/=]{16,}|[A-Za-z]{32,})"
    r"|(?P<word>[A-Z]?[a-z]+)"
    r"|(?P<capitals>[A-Z]+)"
    r"|(?P<digit>[0-9])"
    r"|(?P<space> (?=\S))"
    r"|(?P<blank>\s+)"
    r"|(?P<mark>[!-/:-@\[-`{-~])"
    r"|(?P<latin>[\u00a1-\u024f])"
    r"|(?P<han>[\u3400-\u9fff\uf900-\ufaff]+)"
    r"|(?P<kana>[\u3000-\u30ff\uff00-\uffef])"
    r"|(?P<hangul>[\uac00-\ud7af])"
    r"|(?P<alphabet>[\u0250-\u08ff])"
    r"|(?P<indic>[\u0900-\u109f])"
    r"|(?P<symbol>[\u10a0-\uffff])"
    r"|(?P<astral>.)",
    re.DOTALL,
)

#: Tokens of one character of a kind.
WEIGHTS = {
    "blob": 1.0,
    "digit": 1.0,
    "space": 0.1,
    "mark": 1.0,
    "latin": 0.9,
    "kana": 1.0,
    "hangul": 1.35,
    "alphabet": 1.1,
    "indic": 1.5,
    "symbol": 2.6,
    "astral": 4.2,
}
COMMON_HAN, RARE_HAN = 1.6, 3.4
#: Letters of a word that one token holds in most words, and those it holds beyond them.
FIRST_LETTERS, FURTHER_LETTERS = 5, 2.6


def estimated_tokens(text: str) -> int:
    """Tokens of the text, estimated high; the time is linear in its length."""
    tokens = 0.0
    for piece in _PIECES.finditer(text):
        kind, length = piece.lastgroup or "", piece.end() - piece.start()
        if kind == "word":
            tokens += 1 + max(0, length - FIRST_LETTERS) / FURTHER_LETTERS
        elif kind == "capitals":
            tokens += 1 + length / 3
        elif kind == "blank":
            tokens += 1.3 + length / 10
        elif kind == "han":
            tokens += _han_tokens(piece.group())
        else:
            tokens += WEIGHTS[kind] * length
    return int(tokens) + 1 if text else 0


def _han_tokens(text: str) -> float:
    """Chinese characters: the common ones, in the first level of GB 2312 or of Big5 (lead bytes
    below 0xD8 and 0xC9), are in most vocabularies; the others are spelled in bytes."""
    simplified = _pairs_below(text.encode("gb2312", "ignore"), 0xD8)
    traditional = _pairs_below(text.encode("big5", "ignore"), 0xC9)
    common = max(simplified, traditional)
    return COMMON_HAN * common + RARE_HAN * (len(text) - common)


def _pairs_below(encoded: bytes, lead: int) -> int:
    return len(encoded[::2].translate(None, bytes(range(lead, 0x100))))
