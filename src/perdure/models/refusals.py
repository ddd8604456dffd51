"""What an endpoint's refusal means: HTTP status, headers and body to an error of ours. Pure.

Context-length errors have no common code, so they are known by their wordings, and their figures
are read from the text. Wordings: OpenAI and Azure ("maximum context length is 8192 tokens"),
vLLM and SGLang, llama.cpp (`exceed_context_size_error`), Ollama, LiteLLM
(`ContextWindowExceededError`), Anthropic ("prompt is too long: 210000 tokens > 200000 maximum"),
Gemini ("input token count (40000) exceeds the maximum number of tokens allowed (32768)"), Mistral,
DeepSeek, Groq, Together, TGI.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from perdure.errors import (
    AuthenticationRefused,
    ContextOverflow,
    EndpointBroken,
    EndpointError,
    EndpointRefused,
    ModelUnknown,
    RateLimited,
)

#: Statuses after which the same request may succeed a little later.
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})

#: The status that an error inside a stream would have had, by its type or code.
_STATUS_OF = {
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "resource_exhausted": 429,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "invalid_argument": 400,
}

_OVERFLOW_TYPES = (
    "exceed_context_size",
    "context_length_exceeded",
    "contextwindowexceeded",
    "context_window",
)
_OVERFLOW = re.compile(
    r"maximum context length|context[ _-]?(?:length|window|size)[^.]{0,60}(?:exceed|too small|limit)"
    r"|exceed\w*[^.]{0,80}(?:context|maximum number of (?:input )?tokens|max_model_len|token limit)"
    r"|(?:prompt|input|request|inputs?)[^.]{0,40}\b(?:is |are )?too (?:long|large)[^.]{0,60}"
    r"(?:token|context|model|maximum)"
    r"|tokens exceed[^.]{0,40}limit|prompt (?:is )?too long|too many (?:input )?tokens"
    r"|prompt contains \d+ tokens|longer than the (?:model's )?(?:maximum )?(?:context|model)"
    r"|reduce the length of (?:the messages|your prompt|the input|either one)"
    r"|inputs` tokens \+ `max_new_tokens` must be|input length and `?max_tokens`? exceed",
    re.IGNORECASE,
)
#: These speak of tokens and limits and are something else: the second, where no window is named.
_NOT_OVERFLOW = re.compile(
    r"tokens? per (?:minute|day|hour|second)|rate limit|\bTPM\b|\bTPD\b|quota", re.IGNORECASE
)
_ANSWER_LIMIT = re.compile(
    r"max_(?:completion_|output_)?tokens[`'\"]? (?:is too large|must be|should be|cannot|may not)"
    r"(?!.*maximum (?:context|model) length)",
    re.IGNORECASE,
)
_NUMBER = r"(\d[\d,_]*)"
_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:\d|tokens)\s*>\s*{_NUMBER}",
        rf"maximum context length (?:is|of) {_NUMBER}",
        rf"maximum model length (?:is|of) {_NUMBER}",
        rf"(?:available )?context (?:size|window|length)(?! by)[^\d]{{0,30}}\(?{_NUMBER}",
        rf"configured limit of {_NUMBER}",
        rf"{_NUMBER} ?(?:tokens? )?(?:maximum|limit)\b",
        rf"maximum number of (?:input )?tokens allowed \(?{_NUMBER}",
        rf"tokens? >=? {_NUMBER}",
        rf"(?:must be|should be) <=? ?{_NUMBER}",
        rf"(?:maximum|limit|max)(?!\w* context length by)[^\d]{{1,40}}{_NUMBER}",
        rf"model with {_NUMBER} maximum",
        rf"window of (?:only )?{_NUMBER}",
    )
)
#: Tokens of the prompt alone, where the text tells them from those of the answer.
_PROMPTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:passed|has) (?:at least )?{_NUMBER} input tokens",
        rf"{_NUMBER} tokens from the input",
        rf"{_NUMBER} \+ \d+ >",
        rf"Given: {_NUMBER} `?inputs",
    )
)
#: Tokens of the answer, where they are a part of those that were requested.
_ANSWERS = (re.compile(rf"{_NUMBER} (?:tokens )?(?:in|for|of) the (?:completion|output)", re.IGNORECASE),)
_REQUESTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"requested (?:about |a total of )?{_NUMBER} tokens",
        rf"request \({_NUMBER} tokens?\)",
        rf"resulted in {_NUMBER} tokens",
        rf"too long: {_NUMBER} tokens",
        rf"prompt contains (?:at least )?{_NUMBER} (?:input )?tokens",
        rf"token count \(?(?:of )?{_NUMBER}",
        rf"contains {_NUMBER} tokens",
        rf"has {_NUMBER} tokens",
        rf"length(?: of)? \(?{_NUMBER}\)?[^\d]{{0,40}}(?:exceed|longer|greater)",
        rf"{_NUMBER} tokens? (?:>|exceeds?|from|is|are)",
        rf"(?<![\d,_])(?<!by ){_NUMBER} tokens",
    )
)


def refusal(
    status: int, headers: Mapping[str, str], body: str, *, url: str, model: str, secret: str = ""
) -> EndpointError:
    """The error that an answer with this status means. ``secret`` is masked wherever the endpoint
    repeats it. Never raises."""
    about = read_body(body)
    detail = masked(about.text or f"HTTP {status}", secret)
    facts: dict[str, Any] = {"url": url, "status": status, "model": model}
    if overflow := _overflow(about, detail, facts):
        return overflow
    if status in {401, 403}:
        return AuthenticationRefused(detail, **facts)
    if status == 429:
        asked = retry_after(headers)
        # A quota that fills up again says when; one that was paid for and is used up doesn't.
        spent = "insufficient_quota" in about.kind or (asked is None and "quota" in detail.lower())
        return RateLimited(detail, retry_after=asked, spent=spent, **facts)
    if status in {400, 404} and about.structured and _says_model_unknown(about, model):
        return ModelUnknown(detail, **facts)
    if status >= 500 or status == 404 or not about.structured:
        return EndpointBroken(f"HTTP {status}, {detail}", retry_after=retry_after(headers), **facts)
    return EndpointRefused(detail, **facts)


def refusal_in_stream(error: Any, *, url: str, model: str, secret: str = "") -> EndpointError:
    """The error that an ``error`` object inside a stream with status 200 means."""
    code = error.get("code", error.get("status")) if isinstance(error, Mapping) else None
    status = int(str(code)) if re.fullmatch(r"[45]\d\d", str(code)) else 500
    if isinstance(error, Mapping) and status == 500:
        names = {str(error.get(name)).lower() for name in ("type", "code", "status")}
        status = next((known for name, known in _STATUS_OF.items() if name in names), status)
    return refusal(status, {}, json.dumps({"error": error}), url=url, model=model, secret=secret)


def error_in(chunk: Mapping[str, Any]) -> Any:
    """What a chunk says went wrong, in each shape that servers use; None where nothing did."""
    if chunk.get("error"):
        return chunk["error"]
    choices = chunk.get("choices")
    if not choices and (chunk.get("object") == "error" or chunk.get("detail") or chunk.get("message")):
        return chunk
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("error"):
            return choice["error"]
    return None


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``Retry-After`` (seconds or an HTTP date,
    RFC 9110, 10.2.3); None where there is neither or it can't be understood."""
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        if "retry-after-ms" in lower:
            return max(0.0, float(lower["retry-after-ms"]) / 1000)
        value = lower.get("retry-after", "")
        if re.fullmatch(r"\s*\d+(?:\.\d+)?\s*", value):
            return float(value)
        when = parsedate_to_datetime(value)
        return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    except (TypeError, ValueError):
        return None


class _About:
    """What a body says: its words, its type or code, and whether it was structured at all."""

    def __init__(self, text: str, kind: str = "", figures: Mapping[str, Any] | None = None) -> None:
        self.text = text
        self.kind = kind.lower()
        self.figures = figures or {}
        self.structured = figures is not None


def read_body(body: str) -> _About:
    """Find the message in the shapes that servers use: ``{"error": {"message"}}``, ``{"error": "…"}``,
    ``{"message"}``, ``{"detail"}`` (also FastAPI's list), a list of these, or plain text."""
    stripped = body.strip()
    if stripped[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title>", stripped, re.IGNORECASE | re.DOTALL)
        named = f" ({' '.join(title.group(1).split())[:100]})" if title else ""
        return _About(f"a web page (HTML){named}")
    try:
        found = json.loads(stripped)
    except (ValueError, RecursionError):
        # Words are an answer too (servers built on axum refuse a field so); nothing at all isn't.
        return _About(" ".join(stripped.split())[:300], "", {} if stripped else None)
    if isinstance(found, list):
        found = found[0] if found else {}
    if not isinstance(found, Mapping):
        return _About(str(found)[:300])
    error = found.get("error", found)
    if not isinstance(error, Mapping):
        return _About(_flat(error), "", found)
    said = error.get("message") or error.get("detail") or error.get("error") or error.get("msg") or error
    # A gateway keeps what the provider behind it said apart; the field in question stands apart too.
    behind = error["metadata"].get("raw") if isinstance(error.get("metadata"), Mapping) else None
    about = [_flat(each) for each in (said, behind, error.get("param")) if each]
    text = ": ".join(each for at, each in enumerate(about) if each not in " ".join(about[:at]))
    kind = " ".join(str(error.get(name) or "") for name in ("type", "code", "status"))
    return _About(text, kind, error)


def _overflow(about: _About, detail: str, facts: Mapping[str, Any]) -> ContextOverflow | None:
    status = facts["status"]
    typed = any(kind in about.kind for kind in _OVERFLOW_TYPES)
    other = _NOT_OVERFLOW.search(detail) or _ANSWER_LIMIT.search(detail)
    if not typed and (other or not _OVERFLOW.search(detail)):
        return None
    if status in {401, 403, 404, 429} and not typed:
        return None
    limit = about.figures.get("n_ctx") or _first(_LIMITS, detail)
    requested = about.figures.get("n_prompt_tokens") or _prompt_in(detail, limit)
    return ContextOverflow(detail, limit=limit, requested=requested, **facts)


def _prompt_in(text: str, limit: int | None) -> int | None:
    """Tokens of the prompt, which are fewer than the limit where it is the answer that had no room."""
    if prompt := _first(_PROMPTS, text):
        return prompt
    requested, answer = _first(_REQUESTS, text), _first(_ANSWERS, text)
    if requested and answer and answer < requested:
        return requested - answer
    # Up to the limit, it is the limit's own figure, or a wording that was read the wrong way round.
    return requested if requested and requested > (limit or 0) else None


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        if found := pattern.search(text):
            number = int(re.sub(r"[,_]", "", found.group(1)))
            if number >= 16:
                return number
    return None


def _says_model_unknown(about: _About, model: str) -> bool:
    if "model_not_found" in about.kind:
        return True
    says_missing = re.search(
        r"model\b.{0,80}(?:not found|does not exist|doesn't exist|is not available|not a valid)"
        r"|(?:unknown|no such|invalid|not a valid) model|try pulling",
        about.text,
        re.IGNORECASE,
    )
    named = bool(model) and model in about.text and "not" in about.text
    return bool(says_missing) or (named and "exist" in about.text)


def _flat(said: Any) -> str:
    if isinstance(said, list):
        said = "; ".join(_pointed(each) if isinstance(each, Mapping) else str(each) for each in said)
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return " ".join(text.split())[:500].rstrip(".")


def _pointed(fault: Mapping[str, Any]) -> str:
    """One fault in FastAPI's list, with the place it is about."""
    loc = fault.get("loc")
    place = ".".join(map(str, loc)) if isinstance(loc, list) else ""
    return f"{place}: {fault['msg']}" if place and "msg" in fault else str(fault.get("msg", fault))


def masked(text: str, secret: str) -> str:
    """The text without the secret, where it is long enough to be one."""
    return text.replace(secret, "***") if len(secret) >= 4 else text
