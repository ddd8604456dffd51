"""Public reports on calculators: what was executed that should have been refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ToolError
from perdure.tools.calculator import calculator


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('pathlib').Path('made_by_calc').touch()",
        "(1).__class__.__base__.__subclasses__()",
        "(lambda: 1)()",
        "open('/etc/hostname').read()",
        "[x for x in (1,)]",
        "{1: 2}",
        "{1, 2}",
        "f'{1}'",
        "a:=3",
        "(a:=3)",
        "1 if 1 else 2",
        "'a'*10",
        "b'a'*10",
        "sqrt.__globals__",
        "sqrt(2).real",
        "abs(-1)[0]",
        "max(*[1, 2])",
        "round(1.5, ndigits=0)",
        "eval('1')",
        "exec('x=1')",
        "getattr(1, 'real')",
        "print(1)",
        "1; 2",
        "1\n2",
        "import os",
        "not 1",
        "1 and 2",
        "1 in [1]",
        "~5",
        "1 << 10**10",
        "5 @ 3",
        "...",
        "None",
        "\\x00",
        "await 1",
        "yield",
    ],
)
def test_what_is_no_arithmetic_is_refused_and_nothing_happens(
    expression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ToolError) as raised:
        calculator.run(expression=expression)
    assert len(str(raised.value)) < 500
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("expression", "result"),
    [("2+3*4", "14"), ("-2**2", "-4"), ("7//2", "3"), ("0.1+0.2", "0.3"), ("1e3", "1000"), (" ( 1 ) ", "1")],
)
def test_arithmetic_still_works(expression: str, result: str) -> None:
    assert calculator.run(expression=expression) == result
