"""Arithmetic, exact where it can be, bounded everywhere.

Our own walk over Python's syntax tree rather than a library: `simpleeval` and `asteval` compute
first and look at the size afterwards, and compute in binary floats. Here numbers are integers
and fractions (so 0.1 + 0.2 is 0.3), only what stands in the tables exists, and the size of a
result is bounded before it is computed.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from perdure.errors import ToolError
from perdure.tools.notation import as_python
from perdure.tools.registry import tool

Number = int | Fraction | float

#: Bits of the largest number: some 4,200 digits, which Python still prints.
MOST_BITS = 14_000
#: Characters of the longest expression, and digits of the longest exact decimal.
MOST_CHARACTERS, MOST_DECIMALS = 4_000, 40


@tool(
    effect="reads",
    timeout=10.0,
    examples=[
        ("What is 12*(3+4)?", {"expression": "12*(3+4)"}),
        ("Compute 7.5 / 2 - 1", {"expression": "7.5 / 2 - 1"}),
        ("What is the square root of 144?", {"expression": "sqrt(144)"}),
        ("How much is 3 to the power of 5?", {"expression": "3**5"}),
        ("Add 4, 8 and 15", {"expression": "4 + 8 + 15"}),
        ("Use the calculator: 99 minus 43", {"expression": "99 - 43"}),
        ("计算 36*25", {"expression": "36*25"}),
        ("18 加 7 等于多少？", {"expression": "18 + 7"}),
    ],
)
def calculator(expression: str) -> str:
    """Compute an arithmetic expression, exactly where possible.

    Numbers, + - * / // % ** and comparisons; sqrt, log, sin, round, factorial, gcd, min, max and
    others; pi and e.

    Args:
        expression: the expression, for example (3.5 + 2) * 4
    """
    try:
        return _shown(_value(_parsed(expression)))
    except ZeroDivisionError:
        raise ToolError("error: division by zero") from None
    except RecursionError:
        raise ToolError("error: the expression is nested too deeply") from None
    except OverflowError:
        raise ToolError("error: the result is too large") from None
    except (ValueError, TypeError) as error:
        raise ToolError(f"error: {error}") from None


def _parsed(expression: str) -> ast.expr:
    if len(expression) > MOST_CHARACTERS:
        raise ToolError(f"error: an expression has at most {MOST_CHARACTERS} characters")
    text = as_python(expression)
    if "#" in text:
        raise ToolError("error: '#' is not arithmetic")
    if not text:
        raise ToolError("error: the expression is empty")
    try:
        return _exact_decimals(ast.parse(text, mode="eval").body, text)
    except (SyntaxError, ValueError, MemoryError) as error:
        raise ToolError(f"error: {expression.strip()[:80]!r} is not an arithmetic expression") from error


def _exact_decimals(tree: ast.expr, text: str) -> ast.expr:
    """The tree with each decimal as the fraction it was written as: Python's parser has made it a
    binary float, which drops digits. ``text`` is one line."""
    written = text.encode()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            node.value = _literal(written[node.col_offset : node.end_col_offset].decode())  # type: ignore[assignment]
    return tree


def _value(node: ast.expr) -> Any:  # noqa: PLR0911 -- one for each kind of expression
    match node:
        case ast.Constant(value=value):
            return _constant(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _number(operand)
        case ast.BinOp():
            return _chain(node)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARISONS for op in ops
        ):
            values = [_number(each) for each in (left, *others)]
            pairs = zip(ops, values, values[1:], strict=False)
            return all(_COMPARISONS[type(op)](a, b) for op, a, b in pairs)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_called(name, _arguments(arguments)))
        case ast.Call(func=ast.Name(id=name)) | ast.Name(id=name):
            raise ToolError(f"error: {name[:40]!r} is not known here (functions: {', '.join(_FUNCTIONS)})")
    raise ToolError(f"error: {ast.unparse(node)[:60]!r} is not arithmetic")


def _constant(value: object) -> Number:
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int(_bounded(value))
    raise ToolError("error: only numbers can be computed with")


def _chain(node: ast.expr) -> Number:
    """Operations from left to right, as in a sum of a thousand numbers, without a frame for each."""
    rest: list[ast.BinOp] = []
    while isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        rest.append(node)
        node = node.left
    if not rest:
        raise ToolError(f"error: {ast.unparse(node)[:60]!r} is not arithmetic")
    value = _number(node)
    for each in reversed(rest):
        value = _bounded(_OPERATIONS[type(each.op)](value, _number(each.right)))
    return value


def _called(name: str, values: list[Number]) -> Number:
    try:
        return _FUNCTIONS[name](*values)
    except TypeError:
        raise ToolError(f"error: {name} does not take {len(values)} numbers") from None
    except ValueError:
        raise ToolError(f"error: {name} is not defined there") from None


def _number(node: ast.expr) -> Number:
    value = _value(node)
    return int(value) if isinstance(value, bool) else value


def _arguments(nodes: list[ast.expr]) -> list[Number]:
    """Arguments of a function; a list or tuple among them gives its items, as in ``max([1, 2])``."""
    flat: list[Number] = []
    for node in nodes:
        flat += (
            [_number(each) for each in node.elts]
            if isinstance(node, ast.List | ast.Tuple)
            else [_number(node)]
        )
    return flat


def _literal(text: str) -> Fraction:
    """A decimal as the fraction it is written as."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ToolError("error: the number is too large or too small") from None
    # Looked at before it becomes a fraction, which writes the whole power of ten out.
    if abs(number.adjusted()) > MOST_BITS // 3:
        raise ToolError("error: the number is too large or too small")
    value: Fraction = _bounded(Fraction(number))
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            raise ToolError("error: the result is not a number")
        return value
    if isinstance(value, complex):
        raise ToolError("error: the result is not a real number")
    if _bits(value) > MOST_BITS:
        raise ToolError("error: the result is too large")
    return value


def _bits(value: Number) -> int:
    if isinstance(value, float):
        return 64
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _whole(value: Fraction) -> Number:
    return value.numerator if value.denominator == 1 else value


def _times(left: Number, right: Number) -> Number:
    if _bits(left) + _bits(right) > 2 * MOST_BITS:
        raise ToolError("error: the result is too large")
    return _exactly(operator.mul, left, right)


def _divided(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return _whole(Fraction(left) / Fraction(right))


def _exactly(operation: Callable[[Any, Any], Any], left: Number, right: Number) -> Number:
    value = operation(left, right)
    return _whole(value) if isinstance(value, Fraction) else value


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) or isinstance(base, float) or isinstance(exponent, float):
        if base == 0 and exponent < 0:
            raise ZeroDivisionError
        root = _exact_root(base, exponent) if isinstance(exponent, Fraction) else None
        value = float(base) ** float(exponent) if root is None else root
        if isinstance(value, complex):
            raise ToolError("error: the result is not a real number")
        return value
    if base in {0, 1, -1}:
        return (
            Fraction(base) ** (exponent % 2 or 2)
            if base and exponent < 0
            else base ** min(exponent, 2 + exponent % 2)
        )
    if _bits(base) * abs(exponent) > 2 * MOST_BITS or abs(exponent) > MOST_BITS:
        raise ToolError("error: the result is too large")
    return _whole(Fraction(base) ** exponent)


def _exact_root(base: Number, exponent: Fraction) -> Number | None:
    """The square root where it is exact."""
    if exponent != Fraction(1, 2) or isinstance(base, float) or base < 0:
        return None
    above, below = math.isqrt(base.numerator), math.isqrt(base.denominator)
    return (
        _whole(Fraction(above, below)) if (above**2, below**2) == (base.numerator, base.denominator) else None
    )


def _sqrt(value: Number) -> Number:
    if value < 0:
        raise ToolError("error: the square root of a negative number is not a real number")
    return _power(value, Fraction(1, 2))


def _factorial(value: Number) -> int:
    number = _natural("factorial", value)
    if number > 1_500:
        raise ToolError("error: the result is too large")
    return math.factorial(number)


def _choices(function: Callable[[int, int], int]) -> Callable[[Number, Number], int]:
    def bounded(of: Number, chosen: Number) -> int:
        name = function.__name__
        n, k = _natural(name, of), _natural(name, chosen)
        if k > n:
            return 0
        factors = min(k, n - k) if function is math.comb else k
        # Neither is larger than n to the power of the factors, and a choice than 2 to that of n.
        if factors * n.bit_length() > 2 * MOST_BITS and not (function is math.comb and n <= MOST_BITS):
            raise ToolError("error: the result is too large")
        return function(n, factors)

    return bounded


def _natural(name: str, value: Number) -> int:
    if value != int(value) or value < 0:
        raise ToolError(f"error: {name} takes whole numbers that are not negative")
    return int(value)


def _integers(function: Callable[..., int]) -> Callable[..., int]:
    def checked(*values: Number) -> int:
        if any(value != int(value) for value in values):
            raise ToolError(f"error: {function.__name__} takes whole numbers")
        return function(*(int(value) for value in values))

    return checked


def _real(function: Callable[..., float]) -> Callable[..., Number]:
    def in_floats(*values: Number) -> Number:
        # Whole numbers as they are: math.log takes those that no float can hold.
        return function(*(value if isinstance(value, int) else float(value) for value in values))

    return in_floats


def _rounded(value: Number, digits: Number = 0) -> Number:
    """Half away from zero, as people round."""
    places = int(digits)
    if abs(places) > 300:
        raise ToolError("error: round takes at most 300 digits")
    scale = Fraction(10) ** places
    scaled = Fraction(value) * scale
    whole = math.floor(abs(scaled) + Fraction(1, 2))
    return _whole(Fraction(whole if scaled >= 0 else -whole) / scale)


def _logarithm(value: Number, base: Number = math.e) -> Number:
    special: Mapping[Number, Callable[[float], float]] = {math.e: math.log, 2: math.log2, 10: math.log10}
    return _real(special[base])(value) if base in special else _real(math.log)(value, base)


def _sum(*values: Number) -> Number:
    """Bounded after each number, as a sum of many fractions grows with each."""
    total: Number = 0
    for value in values:
        total = _bounded(_exactly(operator.add, total, value))
    return total


def _mean(*values: Number) -> Number:
    if not values:
        raise TypeError
    return _divided(_sum(*values), len(values))


def _multiple(*values: int) -> int:
    """The least common multiple, bounded after each number."""
    return functools.reduce(lambda left, right: int(_bounded(math.lcm(left, right))), values, 1)


_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: lambda left, right: _exactly(operator.add, left, right),
    ast.Sub: lambda left, right: _exactly(operator.sub, left, right),
    ast.Mult: _times,
    ast.Div: _divided,
    ast.FloorDiv: lambda left, right: _exactly(operator.floordiv, left, right),
    ast.Mod: lambda left, right: _exactly(operator.mod, left, right),
    ast.Pow: _power,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CONSTANTS: Mapping[str, Number] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "sqrt": _sqrt,
    "cbrt": _real(math.cbrt),
    "exp": _real(math.exp),
    "log": _logarithm,
    "ln": _real(math.log),
    "log2": _real(math.log2),
    "log10": _real(math.log10),
    "sin": _real(math.sin),
    "cos": _real(math.cos),
    "tan": _real(math.tan),
    "asin": _real(math.asin),
    "acos": _real(math.acos),
    "atan": _real(math.atan),
    "atan2": _real(math.atan2),
    "degrees": _real(math.degrees),
    "radians": _real(math.radians),
    "hypot": _real(math.hypot),
    "abs": abs,
    "round": _rounded,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "min": min,
    "max": max,
    "sum": _sum,
    "mean": _mean,
    "pow": _power,
    "factorial": _factorial,
    "comb": _choices(math.comb),
    "perm": _choices(math.perm),
    "gcd": _integers(math.gcd),
    "lcm": _integers(_multiple),
}


def _shown(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.15g}" if value != int(value) or abs(value) >= 1e15 else str(int(value))
    if (exact := _decimal(value)) is not None:
        return exact
    if 1e-300 < abs(value) < 1e300:
        return f"{float(value):.15g}"
    near = Context(prec=15)
    return f"{near.divide(Decimal(value.numerator), Decimal(value.denominator)):e}"


def _decimal(value: Fraction) -> str | None:
    """The fraction as the decimal it is, where that ends."""
    places, below = 0, value.denominator
    for prime in (2, 5):
        count = 0
        while below % prime == 0:
            below //= prime
            count += 1
        places = max(places, count)
    if below != 1 or places > MOST_DECIMALS:
        return None
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"
