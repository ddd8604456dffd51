"""Secrets that only the name before them gives away: ``DB_PASSWORD=``, ``"api_key": "``, ``密码：``.

Names are what prose and code are full of too, so the weaker the sign between name and value, the
more the value itself must look like a secret: anything quoted behind ``password:``, but letters
*and* digits behind ``token is``. In doubt about a password, it is masked: a word missing in a note
can be read back from the archive, a password in a note can't be taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: What stands in place of a secret, in every language.
MARK = "[secret]"

Span = tuple[int, int]

#: The word that a name ends with. What stands before it decides what it names (`_kind`).
_CORE = re.compile(
    r"(?:passw(?:or)?d|passphrase|passcode|pass|pwd|secret|token|key|credentials?|auth"
    r"|密码|口令|密钥|秘钥|私钥|令牌|凭证)(?![a-z])"
)
#: One of these is in every text that such a secret is in.
NAME_WORDS = (
    *("pass", "pwd", "secret", "token", "key", "credential", "auth"),
    *("密", "口令", "钥", "令牌", "凭证"),
)
_KIND_OF = {
    **dict.fromkeys(("auth", "令牌", "凭证"), "token"),
    **dict.fromkeys(("secret", "credential", "credentials", "密钥", "秘钥", "私钥"), "credential"),
}
_KEY_OF = (
    *("api", "access", "account", "secret", "private", "auth", "service", "client", "encryption"),
    *("signing", "shared", "master", "storage", "subscription", "webhook", "consumer", "session"),
    *("admin", "deploy", "app"),
)
_TOKEN_OF = (
    *("access", "auth", "refresh", "bearer", "id", "session", "private", "api", "bot", "secret"),
    *("security", "device", "login"),
)
#: Tokens that are counted, or mark a place in a list or a text.
_COUNTED = (
    *("page", "next", "prev", "previous", "cursor", "continuation", "sync", "special", "eos", "bos"),
    *("pad", "unk", "sep", "cls", "mask", "max", "min", "num", "total", "per", "stop", "start", "end"),
    *("first", "last", "input", "output", "prompt", "completion", "cached"),
)
#: Behind the name: what closes it, says whose it is or of what type, and the sign that a value comes.
_SIGN = re.compile(
    r"(?:_?[0-9]{1,3}|_(?:base|value|prod|production|dev|staging|test|live|main|primary|secondary|backup|old"
    r"|new))?(?![a-z0-9_])"
    r"""\\{0,3}["'`*\])}]{0,3}"""
    r"(?:[ \t]for(?:[ \t][\w@.'-]{1,30}){1,4}?(?=[ \t](?:is|was)[ \t]|[ \t]?[:=])"
    r"|[ \t]?[(（][^()（）\n]{1,30}[)）])?"
    r"(?::[ \t]?[A-Za-z][\w.\[\]| ]{0,30}?(?=[ \t]=[^=]|=[ \t]?\\{0,3}[\"'`]))?"
    # ``assigned`` in code or settings, ``told`` by a colon, ``said`` in a sentence, only ``loose``ly there.
    r"(?:(?P<assigned>[ \t]{0,8}(?::=|={1,3}>?|＝)[ \t]{0,8}|>(?=[^<\n]{1,200}</))"
    r"|(?P<told>[ \t]{0,8}[:：][ \t*]{0,8}"
    r"|[ \t]{0,4}(?:就?是|[改设换变置]?[为成]了?|设置为)[ \t]{0,4}[:：]?[ \t]{0,4})"
    r"|(?P<said>[ \t](?:is|was|will be|should be|changed to|set to|reset to)[ \t](?:now )?:?[ \t]?)"
    r"|(?P<loose>[ \t]{1,8}(?:to )?))(?=\S)",
    re.IGNORECASE,
)
_OPTION_NAME = re.compile(
    r"""(?:(?<![^\s"'`(\[])|(?<=\\[nrt]))--?(?:[a-z][\w-]{0,20}|(?<=--))$""", re.IGNORECASE
)

_OPENING = re.compile(r"""\\{0,3}["'`]|[“‘「『]""")
_CLOSES = {"“": "”", "‘": "’", "「": "」", "『": "』"}
#: Characters of a value that are looked at.
LOOKED_AT = 256
_BARE = re.compile(rf"[!-~\u00a1-\u02ff]{{1,{LOOKED_AT}}}")
#: Where a value without quotes ends: a quote, an escaped line break, the next field.
_BARE_END = re.compile(r"""\\?["'`<>]|\\[nrt]|[&;,](?=[\w.\-"']{0,40}[=:]|$)""")
_TRAILING = ".,;:!?)]}*"
#: What stands for a value, or says that there is none.
_NOTHING = re.compile(
    r"(?:[*x.…_#•-]+|<.*>?|[$%{\[].*|(?:your|my|the|some)[-_ ].*|null|none|nil|undefined|true|false|empty|str"
    r"|string|int|integer|bytes|text|required|optional|hidden|redacted|masked|placeholder|here|yes|no|n/a"
    r"|type|value|input|password|passwd|pwd|secret|token|credentials?|bearer|basic)\Z",
    re.IGNORECASE | re.DOTALL,
)
_PATH = re.compile(r"(?:~|\.{0,2})/[\w.-]+(?:/|$)|[a-z]{2,8}://", re.IGNORECASE)
#: Code that fetches a value instead of being one: a call, an index, an attribute, a variable. In
#: the environment (``NAME=value``) there is none.
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[(\[]|(?:self|this|args|config|settings|os|env|process|request|options|data)\."
    r"|[A-Za-z_]*_[A-Za-z_]*$|(?:new|old|user|my|db|raw|client|access)?(?:Password|Secret|Token|Key)$"
    r"|[A-Z][A-Za-z]*Str$|(?:[A-Za-z_]+\.)+\w*(?:password|passwd|pwd|secret|token|key)$"
)
_RUN = re.compile(r"""[^\s"'`<>]*+""")
_PLAIN_WORD = re.compile(r"[A-Za-z]{1,30}+(?![!-+\--9<-~])")
_WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+){0,2}")
#: What a password is said to be where it isn't told.
_SAID_OF_ONE = re.compile(
    r"wrong|right|fine|ok|okay|good|bad|gone|safe|weak|strong|secure|lost|new|old|same|known|set|kept|sent|too"
    r"|not|also|always|never|still|now|only|just|very|so|that|this|it|in|on|at|by|from|to|for|of|with|and|or"
    r"|as|if|an?|the|what|where|when|why|how|short|long|blank|unique|random|public|private|plain|unknown"
    r"|common|simple|easy|hard|correct|incorrect|ready|due|there|reset|change|login|field|form|hash|both|all"
    r"|any|your|our|his|her|one|two|up-to-date|plaintext"
    r"|[A-Za-z'’-]+(?:ed|ing|able|ible|ent|ant|ive|ful|less|ly|ory|ous|ial|ual|lid|ten)",
    re.IGNORECASE,
)
_SYMBOL = re.compile(r"[!@#$%^&*+=?~|]")


def named(text: str) -> Iterator[Span]:
    """Where secrets stand behind a name that gives them away, in order."""
    # A pattern that disregards case is eight times slower than one on lower case.
    lower = text.lower()
    if len(lower) != len(text):  # the Turkish dotted I becomes two characters
        lower = "".join(each.lower()[0] for each in text)
    masked_to = 0
    for core in _CORE.finditer(lower):
        if core.start() < masked_to or text[core.start() - 1 : core.end() + 1] == MARK:
            continue
        before = lower[max(0, core.start() - 24) : core.start()]
        kind, sign = _kind(core[0], before), _SIGN.match(text, core.end())
        if kind and sign and (value := _value(text, sign, kind, before)):
            masked_to = value[1]
            yield value


def _kind(core: str, before: str) -> str | None:
    """``password``, ``credential`` or ``token``: the less often the name stands for something else,
    the less its value must look like a secret. None where it names no secret."""
    owner = before[:-1] if before[-1:] in {"_", "-", " "} else before
    if core == "key":
        return "credential" if owner.endswith(_KEY_OF) else None
    if core == "token" and owner.endswith(_COUNTED + _TOKEN_OF):
        return "credential" if owner.endswith(_TOKEN_OF) else None
    if core == "pass":
        return "password" if before[-1:] in {"_", "-", '"', "'"} else None
    if core in {"pwd", "auth"} and before[-1:].isalpha():
        return None
    return "token" if core == "token" else _KIND_OF.get(core, "password")


def _value(text: str, sign: re.Match[str], kind: str, before: str) -> Span | None:
    """Where the value behind a name stands, if it is a secret."""
    at, how = sign.end(), str(sign.lastgroup)
    if sign["assigned"] == "=" and text[sign.start() - 1].isupper():
        how = "exported"
    elif how == "loose":
        if _OPTION_NAME.search(before):
            how = "assigned"
        elif _PLAIN_WORD.match(text, at):
            return None
    if opening := _OPENING.match(text, at):
        at = opening.end()
        closing = text.find(_CLOSES.get(opening[0], opening[0]), at, at + LOOKED_AT)
        if closing >= 0 and "\n" not in (value := text[at:closing]):
            return (at, closing) if _quoted_secret(kind, how, value) else None
    value = _bare_value(text, at)
    end = at + len(value)
    if not _bare_secret(kind, how, value, last=_ends_clause(text, end)):
        return None
    return at, _the_rest(text, end) if len(value) == LOOKED_AT else end


def _bare_value(text: str, at: int) -> str:
    """What stands there without quotes, as far as it is looked at; empty where nothing does."""
    found = _BARE.match(text, at)
    value = found[0] if found else ""
    if cut := _BARE_END.search(value):
        value = value[: cut.start()]
    return value.rstrip(_TRAILING)


def _the_rest(text: str, at: int) -> int:
    rest = _RUN.match(text, at)
    return rest.end() if rest else at


def _ends_clause(text: str, at: int) -> bool:
    """Nothing more is said in this clause: a sentence that goes on speaks about the password."""
    rest = text[at : at + 3].lstrip("*)]}\"'`")
    return not rest or not rest[0].isascii() or rest[0] in "\r\n.,;!?&|<\\"


def is_nothing(value: str) -> bool:
    """A placeholder, a variable or a word that says that there is no value."""
    return bool(_NOTHING.match(value))


def _quoted_secret(kind: str, how: str, value: str) -> bool:
    if len(value) < 3 or is_nothing(value) or _PATH.match(value):
        return False
    if kind == "token" or how == "loose":
        return looks_random(value) or (kind == "password" and not _SAID_OF_ONE.fullmatch(value))
    if kind == "credential":
        return len(value) >= 6 and not any(map(str.isspace, value))
    # A passphrase has spaces too; a label or a description speaks of the password or ends as one does.
    return " " not in value.strip() or not (_CORE.search(value.lower()) or value.rstrip()[-1:] in ".?!:…")


def _bare_secret(kind: str, how: str, value: str, *, last: bool) -> bool:
    if len(value) < 3 or value[0] == "-" or is_nothing(value) or _PATH.match(value):
        return False
    if how != "exported" and _CODE.match(value):
        return False
    if kind == "token" or (kind == "credential" and how not in {"assigned", "exported"}):
        return looks_random(value)
    if how in {"assigned", "exported"}:
        return kind == "password" or len(value) >= 6
    if _WORD.fullmatch(value):
        return how != "loose" and last and len(value) >= 4 and not _SAID_OF_ONE.fullmatch(value)
    return len(value) >= 4 and (how == "told" or _is_odd(value, how))


def _is_odd(value: str, how: str) -> bool:
    """No word of a sentence about a password looks like this."""
    if value.isdigit():
        return how == "said"
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and "-" not in value
    odd = mixed or value.count("-") > 2 or _SYMBOL.search(value) or looks_random(value)
    return bool(odd) and (how == "said" or len(value) >= 6)


def looks_random(value: str) -> bool:
    """Letters and digits in a run of some length, as no word, number or path has them."""
    if len(value) < 8 or " " in value or _PATH.match(value) or _CODE.match(value):
        return False
    if any(map(str.isdigit, value)):
        return any(map(str.isalpha, value))
    return len(value) >= 20 and value.isalnum() and not (value.islower() or value.isupper())
