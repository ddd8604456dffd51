from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.grounding import grounded


@pytest.mark.parametrize(
    ("written", "request_text", "copied", "meant"),
    [
        ("3.5 + 2", "Compute (3.5+2)/7", False, "(3.5+2)/7"),
        ("144/12 - 5", "Calculate (144/12)-5", False, "(144/12)-5"),
        ("8*9 + 9*6", "请计算 (8+9)*6", False, "(8+9)*6"),
        ("1000 - 357}", "What is 1000 - 357?", False, "1000 - 357"),
        ("23*47+11", "What is 23*47+11?", False, "23*47+11"),
        ("1", "What is 1+1?", False, "1+1"),
        ("1", "1+1等于几？", False, "1+1"),
        ("47+11", "What is 23 * (47 + 11)?", False, "23 * (47 + 11)"),
        ("5", "Show 5 lines, then compute 5+6", False, "5"),
        ("1", "What is 1+1, and what 1+2?", False, "1"),
        ("7", "What is 1+1?", False, "7"),
        ("ls", "List the files of tools/ and 1+1", False, "ls"),
        ("19 + 23 + 58", "Add 19, 23 and 58", False, "19 + 23 + 58"),
        ("17 * 23", "What's 17 times 23?", False, "17 * 23"),
        ("test_main.py", "Open the file tests/test_main.py", True, "tests/test_main.py"),
        ("LICENSE", "cat the file LICENSE.txt for me", True, "LICENSE.txt"),
        ("README.md", "Read the file README.md.", True, "README.md"),
        ("makefile.py", "then read the file Makefile", True, "Makefile"),
        ("Makefile", "Print the file Makefile", True, "Makefile"),
        ("Makefile?", "What is in Makefile?", True, "Makefile"),
        ("Oslo?", "What is the weather in Oslo?", True, "Oslo"),
        ("奥斯陆？", "今天天气如何：奥斯陆？", True, "奥斯陆"),
        ("config/app.yml", "Show me config/app.yaml", True, "config/app.yaml"),
        ("b.txt", "compare a.txt with b.txt", True, "b.txt"),
        ("ls -la", "List the files of version 2.0", False, "ls -la"),
        ("df -h", "How much disk space is free?", False, "df -h"),
        ("wc -l main.py", "Count the lines of main.py", False, "wc -l main.py"),
        ("git logs", "run `git log` for me", False, "git log"),
    ],
)
def test_a_miscopied_literal_is_put_back_and_others_are_left(
    written: str, request_text: str, copied: bool, meant: str
) -> None:
    names = ["x"] if copied else []
    assert grounded({"x": written}, request_text, names) == {"x": meant}


def test_what_is_no_text_is_left() -> None:
    assert grounded({"n": 5, "flag": True}, "5*6", []) == {"n": 5, "flag": True}


@given(st.text(max_size=40), st.text(max_size=80), st.booleans())
def test_no_text_makes_it_fail_and_it_settles(written: str, request_text: str, copied: bool) -> None:
    names = ["x"] if copied else []
    once = grounded({"x": written}, request_text, names)
    assert grounded(once, request_text, names) == once
