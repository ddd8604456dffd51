"""Mask what must not be told on: keys, tokens, passwords.

Three things give a secret away. Its **own shape**: providers put a prefix before their keys; these
are known here and, for more providers, in the patterns of `detect-secrets`, which loads only when a
text holds such a prefix. The **place it stands in**: a URL's password, a header, an option of curl,
a PEM block. Or the **name before it**: ``DB_PASSWORD=``, ``"api_key": "``, ``the password is``,
``密码：``. High entropy alone says nothing: hashes, UUIDs and booking codes are what an agent must
remember.

Every text that leaves the window goes through here, so most must cost next to nothing: a rule runs
only where one of its words is in the text. No pattern can start in the middle of what it has
already walked over, or it walks a bounded way: the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from perdure.chat.named_secrets import MARK, NAME_WORDS, Span, is_nothing, looks_random, named

__all__ = ["MARK", "masked", "masked_pieces", "secrets_in"]


def masked(text: str) -> str:
    """The text with each secret in it replaced by `MARK`. Masking again changes nothing."""
    return _masked(text) if len(text) <= OFTEN else _masked.__wrapped__(text)


@lru_cache(maxsize=1024)
def _masked(text: str) -> str:
    while spans := _spans(text):
        kept, pieces = 0, []
        for start, end in spans:
            pieces.append(text[kept:start])
            kept = end
        text = MARK.join([*pieces, text[kept:]])
    return text


def masked_pieces(pieces: Sequence[str]) -> list[str]:
    """Pieces that follow one another in a text, each without its part of the text's secrets: a border may
    go through one, of which neither half has a shape."""
    while spans := _spans("".join(pieces)):
        pieces = _without(pieces, spans)
    return [*pieces]


def _without(pieces: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """The pieces of a text with a mark for what each holds of the spans."""
    kept: list[str] = []
    begin = 0
    for piece in pieces:
        inside = [(max(start - begin, 0), min(end - begin, len(piece))) for start, end in spans]
        inside = [(start, end) for start, end in inside if start < end]
        starts, ends = [start for start, _ in inside], [end for _, end in inside]
        between = zip([0, *ends], [*starts, len(piece)], strict=True)
        kept.append(MARK.join(piece[start:end] for start, end in between))
        begin += len(piece)
    return kept


#: Characters of a text up to which it is remembered: each goes to the ledger, the gist and the notes.
OFTEN = 10_000


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
    r"(?P<scheme>(?:bearer|basic|token|bot|digest|apikey|api-key)[ \t]+)?"
    r"(?P<value>[\w.~+/=:-]{8,}+)",
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
        if match[name] and not is_nothing(match[name])
    )


def _headers(text: str) -> Iterator[Span]:
    for match in _HEADER.finditer(text):
        if looks_random(match["value"]) or (match["scheme"] and not is_nothing(match["value"])):
            yield match.span("value")


def _bearers(text: str) -> Iterator[Span]:
    for match in _BEARER.finditer(text):
        if looks_random(match["value"]):
            yield match.span("value")


def _crumbs(text: str) -> Iterator[Span]:
    for header in _COOKIE.finditer(text):
        for match in _CRUMB.finditer(text, *header.span("value")):
            if looks_random(match["value"]):
                yield match.span("value")


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
    _Rule(("authorization",), _headers),
    _Rule(("bearer",), _bearers),
    _Rule(("cookie",), _crumbs),
    _Rule(("curl", "mysql", "mariadb", "sshpass"), _values(_OPTION, "user", "sql", "ssh")),
    _Rule(NAME_WORDS, named),
)
