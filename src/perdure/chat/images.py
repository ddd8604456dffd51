"""What an image costs in tokens, by the formulas that providers publish.

The size is read from the image's own head where it travels with the message; an image behind an
address is of unknown size and counts as the largest that the formula allows.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

#: Characters of base64 in which the head of an image is looked for.
_HEAD = 65_536


class ImageFormula(Protocol):
    def tokens(self, size: tuple[int, int] | None, low: bool) -> int:
        """Tokens of an image of ``size`` in pixels (None: unknown); ``low``: little detail was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Tiles:
    """OpenAI, "Images and vision": ``base`` at low detail; else the image is fitted into 2048 x 2048,
    then to 768 on its short side, and each square of 512 costs ``tile`` on top of ``base``."""

    base: int = 85
    tile: int = 170

    def tokens(self, size: tuple[int, int] | None, low: bool) -> int:
        if low:
            return self.base
        width, height = _fitted(size or (2048, 768), 2048)
        shrink = min(1.0, 768 / min(width, height))
        tiles = math.ceil(width * shrink / 512) * math.ceil(height * shrink / 512)
        return self.base + self.tile * tiles


@dataclass(frozen=True, slots=True)
class Patches:
    """OpenAI's smaller models of 2025: squares of 32 pixels, at most 1,536, times ``factor``."""

    factor: float
    most: int = 1536

    def tokens(self, size: tuple[int, int] | None, low: bool) -> int:
        patches = self.most
        if size:
            patches = min(patches, math.ceil(size[0] / 32) * math.ceil(size[1] / 32))
        return math.ceil(patches * self.factor)


@dataclass(frozen=True, slots=True)
class Area:
    """Anthropic, "Vision": width x height / 750, the long side at most ``side`` pixels, at most
    ``most`` tokens."""

    side: int = 1568
    most: int = 1600

    def tokens(self, size: tuple[int, int] | None, low: bool) -> int:
        width, height = _fitted(size or (self.side, self.side), self.side)
        return min(self.most, math.ceil(width * height / 750))


@dataclass(frozen=True, slots=True)
class Dearest:
    """For models without a published formula: the most that any of ``formulas`` gives."""

    formulas: tuple[ImageFormula, ...] = (Tiles(), Area())

    def tokens(self, size: tuple[int, int] | None, low: bool) -> int:
        return max(formula.tokens(size, low=False) for formula in self.formulas)


def image_tokens(image: Any, formula: ImageFormula) -> int:
    """Tokens of the ``image_url`` of a message's part: ``{"url": ..., "detail": ...}``, or the address."""
    fields: Mapping[str, Any] = image if isinstance(image, Mapping) else {"url": image}
    return formula.tokens(size_of(str(fields.get("url") or "")), fields.get("detail") == "low")


def size_of(url: str) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, GIF or JPEG in a data URL; None for anything else."""
    head, comma, data = url[: _HEAD + 64].partition(";base64,")
    if not comma or not head.startswith("data:image/"):
        return None
    try:
        content = base64.b64decode(data[: len(data) - len(data) % 4])
        width, height = _read_size(content)
    except (binascii.Error, struct.error, ValueError):
        return None
    return (width, height) if width > 0 and height > 0 else None


def _read_size(content: bytes) -> tuple[int, int]:
    if content.startswith(b"\x89PNG"):
        return struct.unpack_from(">II", content, 16)
    if content.startswith(b"GIF8"):
        return struct.unpack_from("<HH", content, 6)
    if not content.startswith(b"\xff\xd8"):
        raise ValueError("neither PNG, GIF nor JPEG")
    at = 2
    while True:
        marker, length = struct.unpack_from(">HH", content, at)
        # Frame headers are FFC0 to FFCF but for the three that hold tables.
        if 0xFFC0 <= marker <= 0xFFCF and marker not in {0xFFC4, 0xFFC8, 0xFFCC}:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return width, height
        if marker < 0xFFC0 or length < 2:
            raise ValueError("not a segment of a JPEG")
        at += 2 + length


def _fitted(size: tuple[int, int], side: int) -> tuple[float, float]:
    """The size shrunk so that its long side is at most ``side``."""
    shrink = min(1.0, side / max(size))
    return size[0] * shrink, size[1] * shrink
