"""What is known of a model by its name: its encoding and its context window, or that they aren't.

Encodings by family, as the tokenizers were published. Windows from the data of `genai-prices`,
which its maintainers keep current, for hosted models; a model served locally has the window it is
served with, which only its server knows (Ollama's default is 4,096, whatever the model could do).
"""

from __future__ import annotations

import re

#: Families by a pattern on the bare name, first match wins. A family without a published
#: vocabulary here (Claude, Gemini, Grok) is unknown and is estimated.
_ENCODINGS = tuple(
    (re.compile(pattern), encoding)
    for pattern, encoding in (
        (r"gpt-oss", "gpt-oss"),
        (r"(chat)?gpt-?(4o|4\.|5|6)|o[1-9](-|$)", "o200k_base"),
        (r"gpt-?(4|3\.?5)|text-embedding", "cl100k_base"),
        (r"(meta-)?llama-?[34]", "llama3"),
        (r"(meta-)?llama-?2|tinyllama|vicuna", "llama2"),
        (r"deepseek.*(llama)", "llama3"),
        (r"deepseek.*qwen|qwen|qwq|qvq", "qwen3"),
        (r"deepseek", "deepseek_v3"),
        (r"mistral-7b|mixtral", "mistral_v1"),
        (r"mistral|ministral|pixtral|magistral|devstral|codestral", "mistral_v3"),
        (r"glm-?[4-9]", "glm4"),
        (r"kimi|moonshot", "kimi_k2"),
        (r"phi-?4", "phi4"),
    )
)


def bare_name(model: str) -> str:
    """The name without the provider in front and the quantisation tag behind:
    ``openai/gpt-4o`` is gpt-4o, ``qwen2.5:7b-instruct-q4_K_M`` is qwen2.5."""
    return model.lower().rsplit("/", 1)[-1].partition(":")[0]


def encoding_of(model: str) -> str | None:
    """The encoding of a model's tokenizer, by a name of `perdure.chat.tokens.ENCODINGS`; None where
    the family isn't known."""
    name = bare_name(model)
    return next((encoding for pattern, encoding in _ENCODINGS if pattern.match(name)), None)


def window_of_model(model: str) -> int | None:
    """The context window of a hosted model in tokens, prompt and answer together; None where it
    isn't known. Takes about half a second at the first call, to load the table."""
    from genai_prices.data_snapshot import get_snapshot

    for name in (model, bare_name(model)):
        try:
            _, found = get_snapshot().find_provider_model(name, None, None, None)
        except LookupError:
            continue
        if found.context_window:
            return int(found.context_window)
    return None
