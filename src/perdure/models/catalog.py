"""What is known of a model by its name: its tokenizer, what images cost it, its context window, its prices.

None where it isn't known, never a guess: a wrong tokenizer counts low without a word, while an
unknown one is estimated high. Names come with a provider in front, a date, a size, a quantisation
or a tag behind; families are told by the name's own part.

Windows and prices of hosted models are those of `genai-prices` (MIT, kept by the pydantic team; 0.15 s to
import, so late and once); of how long a model's answer may be it says nothing, so nothing is said here. A
person's own prices, from their `perdure.toml`, win. A model that somebody serves themselves has the window
it is *served* with, which only its server knows. Ollama is the trap: unless told otherwise it serves 4,096
tokens, whatever the model could do, and cuts a longer prompt in silence. So a name in Ollama's style, or
its port, means 4,096 here; `OLLAMA_CONTEXT_LENGTH` at the server and `--context-window` here raise it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from perdure.chat.images import Area, Dearest, ImageFormula, Patches, Tiles
from perdure.chat.tokens import ScaledCounter, TokenCounter, Usage, counter_for
from perdure.config import ModelPrice, is_loopback

#: Tokens that Ollama serves where nobody set it, and the port it listens on.
OLLAMA_WINDOW, OLLAMA_PORT = 4096, 11434

_VENDOR = re.compile(
    r"^(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|google|meta|minimax|mistral|moonshot(?:ai)?"
    r"|nvidia|openai|qwen|writer|zai)\."
)
#: Behind a colon: what gateways (not Ollama) write there.
_GATEWAY_TAG = re.compile(r"^(?:\d+|free|beta|extended|thinking|online|nitro|floor|exacto|.*-cloud|cloud)$")

#: Patterns on the bare name, first match wins. Later generations with a vocabulary of their own
#: (Llama 4, Qwen 3.5, GLM 5, Gemini 3.5, older DeepSeek and Moonshot models) are left out on purpose.
_ENCODINGS = tuple(
    (re.compile(pattern), encoding)
    for pattern, encoding in (
        (r"gpt-oss", "gpt-oss"),
        (r"^(chat)?gpt-?(4o|4\.1|4\.5|5)|^o[134](?![\w.])|^codex-mini|phi-?4-m", "o200k_base"),
        (r"^gpt-?(4|3\.?5)(?![\d.])|^text-embedding-(3|ada)", "cl100k_base"),
        (r"llama[-_]?v?3(?![\db])|distill-llama|smollm3", "llama3"),
        (r"codellama|code-llama", "codellama"),
        (r"llama[-_]?v?2(?![\db])|tinyllama|vicuna|phi-?3(\.5)?-(mini|medium|moe)", "llama2"),
        (r"qwen-?(1\.5|2|2\.5|3)(?![\d.]|p\d)|distill-qwen|qwq|qvq", "qwen3"),
        (r"^deepseek-(chat|reasoner|flash|v3|v4|r1)", "deepseek_v3"),
        (r"^(open-)?mixtral-8x22b|mistral-7b.*v0\.?3|codestral-(22b|2405)", "mistral_v2"),
        (r"mistral-(small|large)-(24\d\d)|pixtral-large", "mistral_v2"),
        (r"mistral-7b|mixtral|mistral-tiny", "mistral_v1"),
        (
            r"mistral-(nemo|large|medium|small)|open-mistral-nemo|ministral|pixtral-12b|magistral|devstral",
            "mistral_v3",
        ),
        (r"gemma-?[34]|gemini-(2|3-)", "gemma3"),
        (r"gemma", "gemma2"),
        (r"glm-?4", "glm4"),
        (r"kimi-k[23]", "kimi_k2"),
        (r"phi-?4", "phi4"),
        (r"olmo-?2", "olmo2"),
    )
)
_TAGGED = tuple(
    (re.compile(pattern), encoding)
    for pattern, encoding in (
        # Ollama's small deepseek-r1 are other models, taught by it; which ones changed over time.
        (r"^deepseek-r1:(?!671b)", None),
        (r"^mistral:", "mistral_v2"),
        (r"^mixtral:8x22b", "mistral_v2"),
    )
)

#: By OpenAI's guide "Images and vision" and Anthropic's "Vision".
_IMAGES: tuple[tuple[re.Pattern[str], ImageFormula], ...] = tuple(
    (re.compile(pattern), formula)
    for pattern, formula in (
        (r"^gpt-4o-mini", Tiles(2833, 5667)),
        (r"^(gpt-4\.1-mini|gpt-5-mini)", Patches(1.62)),
        (r"^(gpt-4\.1-nano|gpt-5-nano)", Patches(2.46)),
        (r"^o4-mini", Patches(1.72)),
        (r"^(chat)?gpt-4", Tiles(85, 170)),
        (r"^gpt-5(?!\.)", Tiles(70, 140)),
        (r"^o[13](?![\w.])", Tiles(75, 150)),
        (r"claude", Area()),
    )
)

#: Claude's tokenizer isn't published, and another came with Opus 4.7. A reconstruction of its counts
#: (the `ctok` project) was held against our estimate: these factors cover English, German, code and JSON.
_OLDER_CLAUDE = re.compile(
    r"claude-(v?[123](?!\d)|instant|4-)|(opus|sonnet|haiku)-4(?![-.][7-9](?!\d))(?!\d)"
)
_OLDER_CLAUDE_FACTOR, _CLAUDE_FACTOR = 1.15, 1.5


def bare_name(model: str) -> str:
    """The name's own part: ``openai/gpt-4o`` is gpt-4o, ``qwen2.5:7b-instruct-q4_K_M`` is qwen2.5,
    ``us.anthropic.claude-3-haiku-v1:0`` is claude-3-haiku-v1, ``ft:gpt-4o-mini:us::x`` is gpt-4o-mini."""
    name = model.strip().lower().removeprefix("ft:").rsplit("/", 1)[-1].partition(":")[0].partition("@")[0]
    return _VENDOR.sub("", name)


def encoding_of(model: str) -> str | None:
    """The encoding of a model's tokenizer, by a name of `perdure.chat.tokens.ENCODINGS`; None where
    the family isn't known."""
    tagged = model.strip().lower().rsplit("/", 1)[-1]
    for pattern, known in _TAGGED:
        if pattern.search(tagged):
            return known
    name = bare_name(model)
    return next((encoding for pattern, encoding in _ENCODINGS if pattern.search(name)), None)


def token_factor(model: str) -> float:
    """By what the estimate for unknown models must be multiplied for this one; 1.0 for most."""
    if not (name := bare_name(model)).startswith("claude"):
        return 1.0
    return _OLDER_CLAUDE_FACTOR if _OLDER_CLAUDE.search(name) else _CLAUDE_FACTOR


def images_of(model: str) -> ImageFormula:
    """What images cost the model; the dearest of the published formulas where none is its own."""
    name = bare_name(model)
    if name.startswith("claude") and not _OLDER_CLAUDE.search(name):
        return Area(side=2576, most=4784)
    return next((formula for pattern, formula in _IMAGES if pattern.search(name)), Dearest())


def counter_of(model: str, *, reasoning: bool = False) -> TokenCounter:
    """The counter for a model by all that is known of its name: exact where its tokenizer is ours,
    else high. ``reasoning``: its `reasoning_content` is sent back."""
    counter = counter_for(encoding_of(model), reasoning=reasoning, images=images_of(model))
    factor = token_factor(model)
    return counter if factor == 1.0 else ScaledCounter(counter, factor)


def window_of_model(model: str, base_url: str = "") -> int | None:
    """The context window in tokens, prompt and answer together; None where it isn't known.

    ``base_url`` is the endpoint's: a provider that the table knows by it is asked for its own
    figure, and a server on this machine for none, since it serves what it was told to. Takes 0.2 s
    at the first call, to load the table.
    """
    if _by_ollama(model, base_url):
        return OLLAMA_WINDOW
    if base_url and is_loopback(base_url):
        return None
    from genai_prices.data_snapshot import get_snapshot

    table = get_snapshot()
    whole = model.strip().lower()
    asked = [(whole, base_url)] if base_url else []
    for name, url in (*asked, (whole, ""), (bare_name(model), "")):
        try:
            _, found = table.find_provider_model(name, None, None, url or None)
        except LookupError:
            continue
        if found.context_window:
            return int(found.context_window)
    return None


def cost_of(
    model: str, usage: Usage, base_url: str = "", prices: Mapping[str, ModelPrice] = MappingProxyType({})
) -> float | None:
    """What a usage costs in US dollars, by the person's own ``prices``, else by the table's; None where they
    aren't known, and for a server on this machine, of which the table knows none."""
    if (own := prices.get(model.strip())) is not None:
        return _by(own, usage)
    if base_url and is_loopback(base_url):
        return None
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    used = Priced(input_tokens=usage.prompt, output_tokens=usage.completion, cache_read_tokens=usage.cached)
    for name, url in ((model, base_url or None), (bare_name(model), None)):
        try:
            return float(calc_price(used, name, provider_api_url=url).total_price)
        except (LookupError, ValueError):
            continue
    return None


def _by(price: ModelPrice, usage: Usage) -> float | None:
    if usage.cached > usage.prompt:
        return None
    cached = price.input if price.cached is None else price.cached
    dollars = (usage.prompt - usage.cached) * price.input + usage.cached * cached
    return (dollars + usage.completion * price.output) / 1_000_000


def _by_ollama(model: str, base_url: str) -> bool:
    if re.search(rf":{OLLAMA_PORT}(?:/|$)", base_url):
        return True
    name, colon, tag = model.strip().lower().partition(":")
    return bool(colon) and name != "ft" and not base_url.startswith("https:") and not _GATEWAY_TAG.match(tag)
