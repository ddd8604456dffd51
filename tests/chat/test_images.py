from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.images import Area, Dearest, ImageFormula, Patches, Tiles, image_tokens, size_of


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x02\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def jpeg(width: int, height: int) -> bytes:
    tables = (
        b"\xff\xe0"
        + struct.pack(">H", 16)
        + b"JFIF\0"
        + bytes(9)
        + b"\xff\xc4"
        + struct.pack(">H", 5)
        + b"abc"
    )
    return b"\xff\xd8" + tables + b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(20)


def data_url(content: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize("image", [png, gif, jpeg])
@given(width=st.integers(1, 65_535), height=st.integers(1, 65_535))
def test_the_size_is_read_from_the_head_of_the_image(image: object, width: int, height: int) -> None:
    assert size_of(data_url(image(width, height))) == (width, height)  # type: ignore[operator]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://example.org/a.png",
        "data:image/png;base64,",
        "data:image/png;base64,????",
        "data:text/plain;base64,aGVsbG8=",
        data_url(b"\x89PNG"),
        data_url(png(0, 0)),
        data_url(b"\xff\xd8\xff\xe0\xff\xff"),
        data_url(b"\xff\xd8" + b"\0" * 40),
        data_url(b"RIFF....WEBPVP8 ", "webp"),
    ],
)
def test_an_image_of_unknown_size_is_no_failure(url: str) -> None:
    assert size_of(url) is None


@given(st.binary(max_size=200), st.sampled_from([b"\x89PNG", b"GIF8", b"\xff\xd8", b""]))
def test_whatever_stands_in_a_data_url_is_no_failure(content: bytes, magic: bytes) -> None:
    size = size_of(data_url(magic + content))
    assert size is None or min(size) > 0
    assert image_tokens({"url": data_url(magic + content)}, Dearest()) > 0


@pytest.mark.parametrize(
    ("formula", "size", "low", "tokens"),
    [
        # The examples of the published guides.
        (Tiles(), (1024, 1024), False, 765),
        (Tiles(), (2048, 4096), False, 1105),
        (Tiles(), (4096, 8192), True, 85),
        (Tiles(), None, False, 85 + 8 * 170),
        (Tiles(), (512, 512), False, 255),
        (Tiles(2833, 5667), (512, 512), False, 8500),
        (Patches(1.0), (1024, 1024), False, 1024),
        (Patches(1.62), (4000, 4000), False, 2489),
        (Patches(2.46), (32, 32), True, 3),
        (Area(), (1000, 1000), False, 1334),
        (Area(), (200, 200), False, 54),
        (Area(), (8000, 8000), False, 1600),
    ],
)
def test_an_image_costs_what_the_published_formula_says(
    formula: ImageFormula, size: tuple[int, int] | None, low: bool, tokens: int
) -> None:
    assert formula.tokens(size, low) == tokens


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.booleans())
def test_an_unknown_size_costs_as_much_as_any(width: int, height: int, low: bool) -> None:
    for formula in (Tiles(), Tiles(70, 140), Patches(1.62), Area(), Area(2576, 4784), Dearest()):
        assert 0 < formula.tokens((width, height), low) <= formula.tokens(None, low)


def test_the_address_may_stand_alone_or_with_its_detail() -> None:
    url = data_url(png(512, 512))
    assert image_tokens(url, Tiles()) == image_tokens({"url": url, "detail": "auto"}, Tiles()) == 255
    assert image_tokens({"url": url, "detail": "low"}, Tiles()) == 85
    assert image_tokens(None, Tiles()) == image_tokens({}, Tiles()) == 85 + 8 * 170
