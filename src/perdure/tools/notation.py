"""Arithmetic as people and models write it, turned into Python's notation."""

from __future__ import annotations

import re
import unicodedata

_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"
#: What people write, and what Python calls it.
_SPELLINGS = str.maketrans(
    {
        "×": "*",
        "·": "*",
        "⋅": "*",
        "÷": "/",
        "−": "-",
        "–": "-",
        "^": "**",
        "π": "pi",
        "√": "sqrt",
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
    }
)


def as_python(expression: str) -> str:
    """The expression in one line and in Python's signs. What isn't arithmetic stays as it is."""
    # First, as the normal form of 10² is 102.
    text = re.sub(f"[{_RAISED}]+", lambda found: f"**({found[0]})", expression).translate(_SPELLINGS)
    text = unicodedata.normalize("NFKC", text).translate(_SPELLINGS)
    text = " ".join(text.split()).rstrip("=? ")
    # 3x4 is a product, 0x4 is hexadecimal.
    text = re.sub(r"(?<=\d)(?: [xX]|(?<!(?<![\d.])0)[xX]) ?(?=\d)", "*", text)
    text = re.sub(r"\bsqrt\s*(\d+(?:\.\d+)?)", r"sqrt(\1)", text)
    text = re.sub(r"\b(\d+)!(?!=)", r"factorial(\1)", text)
    text = re.sub(r"(?<![\d.])(\d+(?:\.\d+)?) ?% ?of\b", r"(\1/100)*", text)
    text = re.sub(r"(?<![\d.])(\d+(?:\.\d+)?)%(?=\s*(?:$|[-+*/),]))", r"(\1/100)", text)
    if not re.search(r"[A-Za-z_]", text):
        # Commas part a function's arguments; where there is no function, they part thousands.
        text = re.sub(
            r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", lambda found: found[0].replace(",", ""), text
        )
    # Python refuses 007, which people write.
    return re.sub(r"(?<![\w.])0+(?=\d)", "", text)
