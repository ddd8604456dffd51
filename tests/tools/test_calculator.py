from __future__ import annotations

import ast
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.calls import ToolCall
from perdure.errors import ToolError
from perdure.tools.calculator import calculator
from perdure.tools.registry import Registry


def computed(expression: str) -> str:
    return str(calculator.run(expression=expression))


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("23*47+11", "1092"),
        ("2+3*4", "14"),
        ("-2**2", "-4"),
        ("7//2", "3"),
        ("0.1+0.2", "0.3"),
        ("1e3", "1000"),
        (" ( 1 ) ", "1"),
        ("1/3", "0.333333333333333"),
        ("1/8", "0.125"),
        ("-1/8", "-0.125"),
        ("2**1000", str(2**1000)),
        ("12345678901234567890 * 98765432109876543210", str(12345678901234567890 * 98765432109876543210)),
        ("sqrt(144)", "12"),
        ("sqrt(2)", "1.4142135623731"[:16]),
        ("sqrt(0.25)", "0.5"),
        ("round(2.5)", "3"),
        ("round(2.675, 2)", "2.68"),
        ("factorial(20)", "2432902008176640000"),
        ("5! + 1", "121"),
        ("gcd(12, 18)", "6"),
        ("max(1,234)", "234"),
        ("max([3, 9, 2])", "9"),
        ("1,234,567 * 2", "2469134"),
        ("3 < 4 <= 4", "True"),
        ("0.1 + 0.2 == 0.3", "True"),
        ("2^10", "1024"),
        ("3 x 4", "12"),
        ("3×4÷2−1", "5"),
        ("（１＋２）＊３", "9"),
        ("3² + 4²", "25"),
        ("23*47+11=", "1092"),
        ("2+2 = ?", "4"),
        ("15% of 240", "36"),
        ("200 * 15%", "30"),
        ("10 % 3", "1"),
        ("007 + 1", "8"),
        ("2**-2", "0.25"),
        ("(-1)**-3", "-1"),
        ("0**0", "1"),
        ("1**(10**3)", "1"),
        ("8**(1/3)", "2"),
        ("2*pi", "6.28318530717959"),
        ("log(8, 2)", "3"),
        ("mean(1, 2, 4)", "2.33333333333333"),
    ],
)
def test_it_computes(expression: str, result: str) -> None:
    assert computed(expression).startswith(result)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "10**10**10",
        "2**(10**12)",
        "2**-(10**12)",
        "(-3)**(10**9)",
        "factorial(10**9)",
        "factorial(factorial(10))",
        "comb(10**9, 5*10**8)",
        "perm(10**6, 10**6)",
        "9**4000 * 9**4000 * 9**4000",
        "(1/3)**(10**7)",
        "0.5**10000000",
        "1e999",
        "1e308 * 1e308 * exp(700)",
        "exp(10000)",
        "1e-400",
        "9" * 5000,
        "(" * 300 + "1" + ")" * 300,
        "+".join(["1"] * 1999),
        "-" * 3000 + "1",
        "round(1, 10**9)",
    ],
    ids=lambda expression: expression[:30],
)
def test_what_would_take_for_ever_answers_at_once(expression: str) -> None:
    try:
        assert len(computed(expression)) < 5000
    except ToolError as error:
        assert str(error).startswith("error: ")


@pytest.mark.parametrize("expression", ["9**9**9", "10**10**10", "factorial(10**9)", "2**(10**12)"])
def test_a_result_that_is_too_large_is_an_error_that_says_so(expression: str) -> None:
    with pytest.raises(ToolError, match="too large"):
        computed(expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1/0", "division by zero"),
        ("1 % 0", "division by zero"),
        ("0**-1", "division by zero"),
        ("sqrt(-1)", "negative"),
        ("(-8)**0.5", "not a real number"),
        ("log(0)", "error"),
        ("asin(2)", "error"),
        ("", "empty"),
        ("  ", "empty"),
        ("hello", "not known"),
        ("2 +", "not an arithmetic expression"),
        ("factorial(-1)", "not negative"),
        ("factorial(2.5)", "whole numbers"),
        ("gcd(1.5, 2)", "whole numbers"),
        ("sin()", "error"),
        ("True + 1", "only numbers"),
        ("1j", "only numbers"),
        ("[1, 2]", "not arithmetic"),
        ("3(4)", "not arithmetic"),
    ],
)
def test_what_cannot_be_computed_is_a_short_error(expression: str, said: str) -> None:
    with pytest.raises(ToolError, match=said) as raised:
        computed(expression)
    assert len(str(raised.value)) < 500


_leaves = st.integers(-999, 999).map(str) | st.decimals(-99, 99, places=2).map(str)
_expressions = st.recursive(
    _leaves,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=12,
)


@given(_expressions)
def test_it_agrees_with_fractions(expression: str) -> None:
    def exactly(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant():
                return Fraction(ast.unparse(node))
            case ast.UnaryOp(operand=operand):
                return -exactly(operand)
            case ast.BinOp(left=left, op=op, right=right):
                name = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "truediv", "FloorDiv": "floordiv"}
                import operator

                function = getattr(operator, name.get(type(op).__name__, "mod"))
                return Fraction(function(exactly(left), exactly(right)))
        raise AssertionError(ast.dump(node))

    try:
        expected = exactly(ast.parse(expression, mode="eval").body)
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="zero"):
            computed(expression)
        return
    assert abs(Fraction(computed(expression)) - expected) <= abs(expected) / 10**12


@given(st.text(max_size=60))
def test_no_text_does_anything_but_compute_or_be_refused(text: str) -> None:
    try:
        computed(text)
    except ToolError as error:
        assert str(error).startswith("error: ")


@pytest.mark.anyio
async def test_the_model_reads_the_error_as_a_result() -> None:
    outcome = await Registry([calculator]).call(ToolCall("x", "calculator", '{"expression": "1/0"}'))
    assert (outcome.ok, outcome.text) == (False, "error: division by zero")
