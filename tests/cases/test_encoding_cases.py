"""Public reports on reading files: encodings that were garbled, refused, or raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ToolError
from perdure.tools.files import page_of

CHINESE = "数据库连接失败，请检查配置文件里的端口和密码。"


@pytest.mark.parametrize(
    ("content", "shown", "note"),
    [
        (bytes.fromhex("d6d0cec4c4dac8dd0a"), "中文内容", "GB18030"),
        (CHINESE.encode("gbk"), CHINESE, "GB18030"),
        (("# 配置\nport = 5432  # 端口\n" * 3).encode("gb18030"), "端口", "GB18030"),
        (bytes.fromhex("efbbbf696d706f7274206f730d0a"), "import os", "CRLF"),
        (bytes.fromhex("fffe680069000a00"), "hi", "UTF-16"),
        ("hi there\nsecond\n".encode("utf-16-be"), "second", "UTF-16-BE"),
        ("hi there\nsecond\n".encode("utf-16-le"), "second", "UTF-16-LE"),
        ("天气\n".encode("utf-32"), "天气", "UTF-32"),
        (bytes.fromhex("636166e90a"), "café", "guessed"),
        (bytes.fromhex("636166e9"), "café", "guessed"),
        (bytes.fromhex("e4bda0e5a5"), "你\ufffd", "invalid bytes"),
        ("Größe, Übergang, naïve façade\n".encode("cp1252") * 5, "Größe", "guessed"),
        (bytes.fromhex("e4bda0ff0a"), "你\ufffd", "invalid bytes"),
        (b"caf\xc3\xa9 \xff end\n", "café \ufffd end", "invalid bytes"),
        (b"a\r\nb\r\n", "1\ta\n2\tb", "CRLF"),
        ("plain ünïcode 天气 🌧\n".encode(), "plain ünïcode 天气 🌧", ""),
    ],
)
def test_text_is_read_in_its_encoding_and_a_guess_is_called_one(
    tmp_path: Path, content: bytes, shown: str, note: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    page = page_of(tmp_path, "file")
    assert shown in page
    assert note in page
    assert "\ufeff" not in page
    assert "\r" not in page


def test_a_utf8_character_cut_by_the_sample_is_no_invalid_byte(tmp_path: Path) -> None:
    from perdure.tools.decoding import SAMPLE

    (tmp_path / "file").write_text("x" * (SAMPLE - 1) + "\n" + "天气" * 10, encoding="utf-8")
    (tmp_path / "odd").write_text("x" * (SAMPLE - 1) + "天气" * 10, encoding="utf-8")
    assert "invalid" not in page_of(tmp_path, "file")
    assert "invalid" not in page_of(tmp_path, "odd")


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    assert page_of(tmp_path, "empty.txt") == "(the file is empty)"


@pytest.mark.parametrize(
    "content", [b"\x7fELF\x02\x01\x01\x00\x00", bytes(range(256)) * 20, b"\x89PNG\r\n\x1a\n\x00\x00"]
)
def test_a_binary_file_is_named_with_its_size(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "binary").write_bytes(content)
    with pytest.raises(ToolError, match=f"binary file of {len(content)} bytes"):
        page_of(tmp_path, "binary")
