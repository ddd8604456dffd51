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


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("10²", "100"),
        ("10¹²", "1000000000000"),
        ("3⁴ + 2⁻²", "81.25"),
        ("0x10", "16"),
        ("0xff + 1", "256"),
        ("5 * 0x10", "80"),
        ("10x5", "50"),
        ("0 x 10", "0"),
        ("1.0x5", "5"),
        ("3 ≤ 4", "True"),
        ("3 ≠ 3", "False"),
        ("1 +\n 2", "3"),
        ("99999999999999999999.5 + 0.5", "100000000000000000000"),
        ("123456789.123456789 * 1000", "123456789123.456789"),
        ("0.12345678901234567890123 * 10", "1.2345678901234567890123"),
        ("floor(log(1000, 10))", "3"),
        ("log10(10**4000)", "4000"),
        ("comb(5, 10**9)", "0"),
        ("comb(10**9, 10**9 - 1)", "1000000000"),
        ("perm(5, 10**9)", "0"),
        ("perm(5, 2)", "20"),
        ("1e-400", "1e-400"),
        ("1/10**4000", "1e-4000"),
        ("10**4000 / 3", "3.33333333333333e+3999"),
        ("1e400 / 1e399", "10"),
    ],
)
def test_no_wrong_number_is_given_for_what_people_write(expression: str, result: str) -> None:
    assert calculator.run(expression=expression) == result


@pytest.mark.parametrize("separator", ["+", " + ", "-", "*"])
def test_a_long_row_of_numbers_is_computed(separator: str) -> None:
    row = separator.join(["1"] * 900)
    assert int(calculator.run(expression=row)) == {"+": 900, "-": -898, "*": 1}[separator.strip()]


@pytest.mark.parametrize(
    "expression",
    [
        "perm(10**9, 10**9)",
        "perm(10**9, 10**9 - 1)",
        "perm(10**300, 10**6)",
        "comb(10**9, 5 * 10**8)",
        "comb(10**4000, 10**4000 - 3)",
        "lcm(" + ", ".join(f"2**13999-{n}" for n in range(1, 240)) + ")",
        "sum(" + ", ".join(f"1/(2**13999-{n})" for n in range(1, 190)) + ")",
        "mean(" + ", ".join(f"1/(2**13999-{n})" for n in range(1, 190)) + ")",
        "1e" + "9" * 100,
        "1e-" + "9" * 100,
        "2.5e-999999999",
    ],
    ids=lambda expression: expression[:24],
)
@pytest.mark.timeout(20)
def test_what_would_hold_up_the_process_is_refused_before_it_is_computed(expression: str) -> None:
    with pytest.raises(ToolError, match="too large"):
        calculator.run(expression=expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("sqrt(1, 2)", "error: sqrt does not take 2 numbers"),
        ("round()", "error: round does not take 0 numbers"),
        ("mean()", "error: mean does not take 0 numbers"),
        ("pow(2, 3, 5)", "error: pow does not take 3 numbers"),
        ("log(-1)", "error: log is not defined there"),
        ("asin(2)", "error: asin is not defined there"),
        ("perm(2.5, 1)", "error: perm takes whole numbers that are not negative"),
        ("1 # and more", "error: '#' is not arithmetic"),
    ],
)
def test_an_error_speaks_of_what_was_written(expression: str, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        calculator.run(expression=expression)
    assert str(raised.value) == said


def test_an_unknown_name_of_any_length_is_a_short_error() -> None:
    with pytest.raises(ToolError) as raised:
        calculator.run(expression="a" * 3900)
    assert len(str(raised.value)) < 500
