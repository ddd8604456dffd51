"""Mask what must not be told on: keys, tokens, passwords.

Three things give a secret away. Its **own shape**: providers put a prefix before their keys; these
are known here and, for more providers, in the patterns of `detect-secrets`, which loads only when a
text holds such a prefix. The **place it stands in**: a URL's password, a header, an option of curl,
a PEM block. Or the **name before it**: ``DB_PASSWORD=``, ``"api_key": "``, ``the password is``,
``密码：``. High entropy alone says nothing: hashes, UUIDs and booking codes are what an agent must
remember.

Names are also what prose and code are full of, so the weaker the sign between name and value, the
more the value itself must look like a secret: anything quoted behind ``password:``, but letters
*and* digits behind ``token is``. In doubt about a password, it is masked: a word missing in a note
can be read back from the archive, a password in a note can't be taken back.

Every text that leaves the window goes through here, so most must cost next to nothing: a rule runs
only where one of its words is in the text. No pattern can start in the middle of what it has
already walked over, or it walks a bounded way: the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

#: What stands in place of a secret, in every language.
MARK = "[secret]"

Span = tuple[int, int]


def masked(text: str) -> str:
    """The text with each secret in it replaced by `MARK`. Masking again changes nothing."""
    while spans := _spans(text):
        kept, pieces = 0, []
        for start, end in spans:
            pieces.append(text[kept:start])
            kept = end
        text = MARK.join([*pieces, text[kept:]])
    return text


def secrets_in(text: str) -> list[str]:
    """The secrets in a text, in order: what `masked` would replace."""
    return [text[start:end] for start, end in _spans(text)]


def _spans(text: str) -> list[Span]:
    """Where secrets stand, in order, without overlap; never only a mark."""
    lower = text.lower()
    # A key with a shape of its own is one long word, and most texts have few of these.
    words = lower.encode("ascii", "replace").replace(b"?", b" ").decode().split()
    long_words = " ".join([word for word in words if len(word) >= SHORTEST_KEY])
    found: list[Span] = []
    for rule in _RULES:
        searched = long_words if rule.one_word else lower
        for needle in rule.needles:
            if needle in searched:
                found += rule.spans(text)
                break
    return _apart(found, text) if found else []


def _apart(spans: list[Span], text: str) -> list[Span]:
    """The spans in order, those that overlap made one, without the marks that they held."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return [span for span in joined if text[slice(*span)].replace(MARK, "")]


# --- secrets with a shape of their own ----------------------------------------------------------

SHORTEST_KEY = 16

#: Where a key may begin: behind no letter or digit, but behind an escaped line break, as in JSON,
#: and behind an escaped byte, as in a URL.
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"

#: Prefixes that nothing but a provider's keys has, what a key is made of, and its fewest characters.
_PREFIXES = (
    ("AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA", "[0-9A-Z]", 16),  # Amazon
    ("AGE-SECRET-KEY-1", "[0-9A-Z]", 30),
    (r"AIza|ya29\.|GOCSPX-|1//0", r"[\w-]", 20),  # Google
    ("gh[pousr]_|github_pat_", r"\w", 16),
    ("gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas)-|GR1348941", r"[\w-]", 16),
    ("xox[abceoprs]-|xapp-", r"[\w-]", 10),  # Slack
    ("[srp]k_(?:live|test)_|whsec_", r"[A-Za-z0-9]", 10),  # Stripe
    ("hf_|gsk_|xai-|pplx-|r8_|fw_|jina_|csk-|phx_", "[A-Za-z0-9]", 16),  # Hugging Face, Groq, xAI, ...
    ("nvapi-|tvly-|pypi-Ag|dckr_pat_|PMAK-|sntrys_|ATATT3", r"[\w-]", 16),
    (r"hvs\.|dp\.(?:pt|st|ct)\.|glsa_|glc_", r"[\w-]", 16),  # Vault, Doppler, Grafana
    ("npm_|sbp_|rubygems_|lin_api_|ntn_", "[A-Za-z0-9]", 24),
    ("do[oprt]_v1_|shp(?:at|ca|pa|ss)_|dapi", "[0-9a-f]", 24),  # DigitalOcean, Shopify, Databricks
    ("LTAI|AKID", "[A-Za-z0-9]", 16),  # Alibaba, Tencent
    ("secret_", "[A-Za-z0-9]", 40),  # Notion
)
_PREFIXED = re.compile(
    _BEGIN + "(?:" + "|".join(f"(?:{names}){of}{{{fewest},}}+" for names, of, fewest in _PREFIXES) + ")",
    re.ASCII,
)
_PREFIX_WORDS = (
    *("akia", "asia", "abia", "acca", "agpa", "aida", "aroa", "age-s", "aiza", "ya29", "gocspx", "1//0"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat", "gl", "gr13", "xox", "xapp-", "_live_"),
    *("_test_", "whsec_", "hf_", "gsk_", "xai-", "pplx-", "r8_", "fw_", "jina_", "csk-", "phx_"),
    *("nvapi-", "tvly-", "pypi-ag", "dckr_", "pmak-", "sntrys_", "atatt3", "hvs.", "dp.", "npm_", "sbp_"),
    *("rubygems_", "lin_", "ntn_", "_v1_", "shp", "dapi", "ltai", "akid", "secret_"),
)
#: OpenAI's form, which many took over: ``sk-``, perhaps words, and a run that is no word.
_SK = re.compile(rf"{_BEGIN}sk-[\w-]{{8,}}+", re.ASCII)
_SK_RUN = re.compile(r"[A-Za-z0-9]{20}|(?=[A-Za-z]{0,8}[0-9])(?=[0-9]{0,8}[A-Za-z])[A-Za-z0-9]{8}")
_JWT = re.compile(
    r"(?:(?<![\w-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))eyJ[\w-]{6,}+\.[\w-]{4,}+(?:\.[\w-]*+)?", re.ASCII
)
_PEM = re.compile(
    r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----)[\s\S])*+-----END[A-Z0-9 ]{0,40}-----"
    # Its end was cut off: as far as the lines look like base64.
    r"|(?:(?:\s|\\[nr]){0,8}+[A-Za-z0-9+/=]{16,}+)*+(?:(?:\s|\\[nr]){1,4}[A-Za-z0-9+/]{1,15}={1,2})?)"
)


def _sk_keys(text: str) -> Iterator[Span]:
    return (match.span() for match in _SK.finditer(text) if _SK_RUN.search(match[0], 3))


# --- what detect-secrets knows beyond these -----------------------------------------------------

#: Its detectors whose patterns have a shape of their own, each with the words that call for it.
_DETECTORS = (
    ("discord", "DiscordBotTokenDetector", ("discord", "bot")),
    ("mailchimp", "MailchimpDetector", ("-us",)),
    ("sendgrid", "SendGridDetector", ("sg.",)),
    ("slack", "SlackDetector", ("hooks.slack.com",)),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp",)),
    ("telegram_token", "TelegramBotTokenDetector", (":aa",)),
    ("twilio", "TwilioKeyDetector", ("twilio",)),
)


@cache
def _patterns_of(module: str, detector: str) -> tuple[re.Pattern[str], ...]:
    """A detector's patterns. They are taken as they are, instead of calling `analyze_string`: that
    gives a group of the match, in some detectors only the prefix, and never where it stands."""
    from importlib import import_module

    return tuple(getattr(import_module(f"detect_secrets.plugins.{module}"), detector).denylist)


def _detected(module: str, detector: str) -> Callable[[str], Iterator[Span]]:
    return lambda text: (
        match.span() for each in _patterns_of(module, detector) for match in each.finditer(text)
    )


# --- secrets known by where they stand ----------------------------------------------------------

#: ``scheme://user:secret@host``: what is between the first colon and the last ``@``.
_IN_URL = re.compile(r"""://[^\s:/?#@"'`<>]{0,200}+:(?P<value>[^\s/"'`<>]{1,500})@""")
#: A shared access signature, or a signed link.
_SIGNED = re.compile(
    r"[?&;](?:sig|signature|x-(?:amz|goog)-signature)=(?P<value>[\w%+/=.-]{16,}+)", re.IGNORECASE
)
_HEADER = re.compile(
    r"""\bauthorization\\{0,3}["']?[ \t]*[:=][ \t]*\\{0,3}["']?"""
    r"(?:(?:bearer|basic|token|bot|digest|apikey|api-key)[ \t]+)?"
    r"(?P<value>[\w.~+/=:-]{6,}+)",
    re.IGNORECASE | re.ASCII,
)
_BEARER = re.compile(r"\bbearer[ \t]+(?P<value>[\w.~+/=-]{8,}+)", re.IGNORECASE | re.ASCII)
_COOKIE = re.compile(r"""\bcookie["']?[ \t]*:[ \t]*["']?(?P<value>[^\n"']{1,4000}+)""", re.IGNORECASE)
_CRUMB = re.compile(r"[\w.-]{1,80}=(?P<value>[^;\s]{8,}+)")
_OPTION = re.compile(
    r"""\bcurl\b[^\n]{0,300}?[ \t](?:-u|--user|--proxy-user)[ =]?["']?[^\s:"']{0,80}"""
    r""":(?P<user>[^\s"']{1,200})"""
    r"""|\b(?:mysql\w*|mariadb\w*)\b[^\n|;]{0,200}?[ \t]-p["']?(?P<sql>[^\s"']{4,200})"""
    r"""|\bsshpass[ \t]+-p[ \t]*["']?(?P<ssh>[^\s"']{1,200})""",
    re.IGNORECASE,
)


def _values(pattern: re.Pattern[str], *names: str) -> Callable[[str], Iterator[Span]]:
    """A rule whose secret is a group of the match, unless a placeholder stands there."""
    names = names or ("value",)
    return lambda text: (
        match.span(name)
        for match in pattern.finditer(text)
        for name in names
        if match[name] and not _NOTHING.match(match[name])
    )


def _bearers(text: str) -> Iterator[Span]:
    for match in _BEARER.finditer(text):
        if _looks_random(match["value"]):
            yield match.span("value")


def _crumbs(text: str) -> Iterator[Span]:
    for header in _COOKIE.finditer(text):
        for match in _CRUMB.finditer(text, *header.span("value")):
            if _looks_random(match["value"]):
                yield match.span("value")


# --- secrets known by the name before them ------------------------------------------------------

#: The word that a name ends with. What stands before it decides what it names (`_kind`).
_CORE = re.compile(
    r"(?:passw(?:or)?d|passphrase|passcode|pass|pwd|secret|token|key|credentials?|auth"
    r"|密码|口令|密钥|秘钥|私钥|令牌|凭证)(?![a-z])",
    re.IGNORECASE,
)
_NAME_WORDS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "auth",
    "密",
    "口令",
    "钥",
    "令牌",
    "凭证",
)
_KEY_OF = (
    *("api", "access", "account", "secret", "private", "auth", "service", "client", "encryption", "signing"),
    *(
        "shared",
        "master",
        "storage",
        "subscription",
        "webhook",
        "consumer",
        "session",
        "admin",
        "deploy",
        "app",
    ),
)
_TOKEN_OF = (
    *("access", "auth", "refresh", "bearer", "id", "session", "private", "api", "bot", "secret", "security"),
    *("device", "login"),
)
#: Tokens that are counted, or mark a place in a list or a text.
_COUNTED = (
    *("page", "next", "prev", "previous", "cursor", "continuation", "sync", "special", "eos", "bos", "pad"),
    *(
        "unk",
        "sep",
        "cls",
        "mask",
        "max",
        "min",
        "num",
        "total",
        "per",
        "stop",
        "start",
        "end",
        "first",
        "last",
    ),
    *("input", "output", "prompt", "completion", "cached"),
)
#: Behind the name: what closes it, says whose it is or of what type, and the sign that a value comes.
_SIGN = re.compile(
    r"(?:_?[0-9]{1,3}|_(?:base|value|prod|production|dev|staging|test|live|main|primary|secondary|backup|old"
    r"|new))?(?![a-z0-9_])"
    r"""\\{0,3}["'`*\])}]{0,3}"""
    r"(?:[ \t]for(?:[ \t][\w@.'-]{1,30}){1,4}?(?=[ \t](?:is|was)[ \t]|[ \t]?[:=])|[ \t]?[(（][^()（）\n]{1,30}[)）])?"
    r"(?::[ \t]?[A-Za-z][\w.\[\]| ]{0,30}?(?=[ \t]?=[^=]))?"
    r"(?:(?P<assigned>[ \t]{0,8}(?::=|={1,3}>?|＝)[ \t]{0,8}|>(?=[^<\n]{1,200}</))"
    r"|(?P<told>[ \t]{0,8}[:：][ \t*]{0,8}"
    r"|[ \t]{0,4}(?:就?是|[改设换变置]?[为成]了?|设置为)[ \t]{0,4}[:：]?[ \t]{0,4})"
    r"|(?P<said>[ \t](?:is|was|will be|should be|changed to|set to|reset to)[ \t](?:now )?:?[ \t]?)"
    r"|(?P<loose>[ \t]{1,8}(?:to )?))(?=\S)",
    re.IGNORECASE,
)
_OPTION_NAME = re.compile(r"(?<!\S)--?[a-z][\w-]{0,20}$|(?<!\S)--$", re.IGNORECASE)

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
#: Code that fetches a value instead of being one: a call, an index, an attribute, a variable.
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[(\[]|(?:self|this|args|config|settings|os|env|process|request|options|data)\."
    r"|[A-Za-z_]*_[A-Za-z_]*$|(?:new|old|user|my|db|raw|client|access)?(?:Password|Secret|Token|Key)$"
    r"|[A-Z][A-Za-z]*Str$"
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


def _named(text: str) -> Iterator[Span]:
    masked_to = 0
    for core in _CORE.finditer(text):
        if core.start() < masked_to or text[core.start() - 1 : core.end() + 1] == MARK:
            continue
        before = text[max(0, core.start() - 24) : core.start()]
        if (kind := _kind(core[0].lower(), before.lower())) and (sign := _SIGN.match(text, core.end())):
            if value := _value(text, sign, kind, before):
                masked_to = value[1]
                yield value


def _kind(core: str, before: str) -> str | None:
    """``password``, ``credential`` or ``token``: the less often the name stands for something else,
    the less its value must look like a secret. None where it names no secret."""
    owner = before[:-1] if before[-1:] in {"_", "-", " "} else before
    glued = before[-1:].isalpha()
    match core:
        case "key":
            return "credential" if owner.endswith(_KEY_OF) else None
        case "token" if owner.endswith(_COUNTED):
            return None
        case "token" if owner.endswith(_TOKEN_OF):
            return "credential"
        case "pass":
            return "password" if before[-1:] in {"_", "-", '"', "'"} else None
        case "pwd" | "auth" if glued:
            return None
        case "token" | "auth" | "令牌" | "凭证":
            return "token"
        case "secret" | "credential" | "credentials" | "密钥" | "秘钥" | "私钥":
            return "credential"
    return "password"


def _value(text: str, sign: re.Match[str], kind: str, before: str) -> Span | None:
    """Where the value behind a name stands, if it is a secret."""
    at, how = sign.end(), str(sign.lastgroup)
    if how == "loose":
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


def _quoted_secret(kind: str, how: str, value: str) -> bool:
    if len(value) < 3 or _NOTHING.match(value) or _PATH.match(value):
        return False
    if kind == "token" or how == "loose":
        return _looks_random(value) or (kind == "password" and not _SAID_OF_ONE.fullmatch(value))
    if kind == "credential":
        return len(value) >= 6 and not any(map(str.isspace, value))
    # A passphrase has spaces too; a label or a description speaks of the password or ends as one does.
    return " " not in value.strip() or not (_CORE.search(value) or value.rstrip()[-1:] in ".?!:…")


def _bare_secret(kind: str, how: str, value: str, *, last: bool) -> bool:
    if len(value) < 3 or value[0] == "-" or any(each.match(value) for each in (_NOTHING, _PATH, _CODE)):
        return False
    if kind == "token" or (kind == "credential" and how != "assigned"):
        return _looks_random(value)
    if how == "assigned":
        return kind == "password" or len(value) >= 6
    if _WORD.fullmatch(value):
        return how != "loose" and last and len(value) >= 4 and not _SAID_OF_ONE.fullmatch(value)
    return len(value) >= 4 and (how == "told" or _is_odd(value, how))


def _is_odd(value: str, how: str) -> bool:
    """No word of a sentence about a password looks like this."""
    if value.isdigit():
        return how == "said"
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and "-" not in value
    odd = mixed or value.count("-") > 2 or _SYMBOL.search(value) or _looks_random(value)
    return bool(odd) and (how == "said" or len(value) >= 6)


def _looks_random(value: str) -> bool:
    """Letters and digits in a run of some length, as no word, number or path has them."""
    if len(value) < 8 or " " in value or _PATH.match(value) or _CODE.match(value):
        return False
    if any(map(str.isdigit, value)):
        return any(map(str.isalpha, value))
    return len(value) >= 20 and value.isalnum() and not (value.islower() or value.isupper())


# --- the rules, and the words without which each can't apply ------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """``one_word``: the needles are looked for in long words only."""

    needles: Sequence[str]
    spans: Callable[[str], Iterable[Span]]
    one_word: bool = False


def _whole(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Span]]:
    return lambda text: (match.span() for match in pattern.finditer(text))


_RULES = (
    _Rule(_PREFIX_WORDS, _whole(_PREFIXED), one_word=True),
    _Rule(("sk-",), _sk_keys),
    _Rule(("eyj",), _whole(_JWT), one_word=True),
    _Rule(("private key",), _whole(_PEM)),
    *(_Rule(words, _detected(module, name), True) for module, name, words in _DETECTORS),
    _Rule(("://",), _values(_IN_URL)),
    _Rule(("sig",), _values(_SIGNED), one_word=True),
    _Rule(("authorization",), _values(_HEADER)),
    _Rule(("bearer",), _bearers),
    _Rule(("cookie",), _crumbs),
    _Rule(("curl", "mysql", "mariadb", "sshpass"), _values(_OPTION, "user", "sql", "ssh")),
    _Rule(_NAME_WORDS, _named),
)
