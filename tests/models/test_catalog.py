from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.chat.images import Area, Dearest, ImageFormula, Patches, Tiles
from perdure.chat.tokens import ENCODINGS, Usage, counter_for
from perdure.config import ModelPrice
from perdure.models.catalog import (
    OLLAMA_WINDOW,
    bare_name,
    cost_of,
    counter_of,
    encoding_of,
    images_of,
    token_factor,
    window_of_model,
)

FAMILIES = {
    "o200k_base": [
        *[
            "gpt-4o",
            "openai/gpt-4o-mini-2024-07-18",
            "gpt-5-mini",
            "gpt-4.1-nano",
            "gpt-5.1-codex",
            "gpt-4.5-preview",
        ],
        *["o3", "o1-preview", "o4-mini", "o3-mini-2025-01-31", "chatgpt-4o-latest", "codex-mini-latest"],
        *["ft:gpt-4o-mini-2024-07-18:some-org::abc123", "azure/gpt-4o", "openrouter/openai/gpt-5"],
        *["phi-4-mini-instruct", "microsoft/Phi-4-multimodal-instruct"],
    ],
    "gpt-oss": ["gpt-oss:20b", "openai/gpt-oss-120b", "gpt-oss-safeguard-20b"],
    "cl100k_base": [
        "gpt-4",
        "gpt-4-turbo",
        "gpt-4-0613",
        "gpt-3.5-turbo-16k",
        "gpt-35-turbo",
        "ft:gpt-3.5-turbo:x::y",
    ],
    "llama3": [
        *[
            "meta-llama/Llama-3.1-8B-Instruct",
            "llama3.2:3b",
            "llama3",
            "llama-3.3-70b-versatile",
            "llama-v3p1-8b",
        ],
        *["us.meta.llama3-1-70b-instruct-v1:0", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M"],
        *["nousresearch/hermes-3-llama-3.1-70b", "deepseek-r1-distill-llama-70b", "HuggingFaceTB/SmolLM3-3B"],
        "/models/Meta-Llama-3-8B-Instruct.Q4_K_M.gguf",
    ],
    "llama2": [
        "llama2:13b",
        "meta-llama/Llama-2-7b-chat-hf",
        "tinyllama",
        "vicuna:7b",
        "Phi-3-mini-4k-instruct",
    ],
    "codellama": ["codellama:34b", "meta-llama/CodeLlama-7b-hf"],
    "qwen3": [
        *[
            "qwen2.5:7b-instruct-q4_K_M",
            "Qwen/Qwen3-32B",
            "qwen3:8b",
            "qwen2.5-coder:32b",
            "qwq:32b",
            "qwen-2.5-72b",
        ],
        *[
            "Qwen/Qwen2.5-VL-7B-Instruct",
            "qwen3-coder-plus",
            "deepseek-r1-distill-qwen-7b",
            "qwen2.5-7b-instruct-mlx",
        ],
    ],
    "deepseek_v3": [
        *["deepseek-chat", "deepseek-reasoner", "deepseek/deepseek-v3.2", "deepseek-ai/DeepSeek-V3-0324"],
        *["deepseek-r1:671b", "deepseek-v4-pro", "deepseek-ai/DeepSeek-R1-0528"],
    ],
    "mistral_v1": ["mixtral-8x7b", "mixtral:8x7b", "mistralai/Mistral-7B-Instruct-v0.2", "open-mixtral-8x7b"],
    "mistral_v2": ["mistral:7b", "mistralai/Mistral-7B-Instruct-v0.3", "mixtral:8x22b", "mistral-large-2407"],
    "mistral_v3": [
        *["mistral-large-latest", "mistral-small3.1", "mistral-nemo:12b", "ministral-8b-2410", "pixtral-12b"],
        *["magistral-medium-latest", "devstral-2512", "mistral-small-24b-instruct-2501", "mistral-medium-3"],
    ],
    "gemma3": [
        "gemma3:4b",
        "google/gemma-3-27b-it",
        "gemma-4-31b-it",
        "gemini-2.5-pro",
        "models/gemini-2.0-flash",
    ],
    "gemma2": ["gemma2:9b", "google/gemma-2-2b-it", "gemma:7b", "codegemma:7b"],
    "glm4": ["zai-org/GLM-4.6", "glm-4.5-air", "glm4:9b", "GLM-4.7"],
    "kimi_k2": ["kimi-k2-instruct", "moonshotai/Kimi-K2-Thinking", "kimi-k2.5", "kimi-k3"],
    "phi4": ["phi4:14b", "microsoft/phi-4", "phi-4-reasoning-plus"],
    "olmo2": ["olmo2:7b", "allenai/OLMo-2-1124-7B-Instruct"],
    # Later generations with vocabularies of their own, families without a published one, and names
    # that only look like a known one.
    None: [
        *[
            "claude-sonnet-4-5",
            "anthropic/claude-opus-4.7",
            "grok-4",
            "MiniMax-M2",
            "command-r-plus",
            "nova-pro-v1",
        ],
        *["meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4:scout", "qwen3.5:9b", "Qwen/Qwen3.6-35B-A3B"],
        *["qwen3p5-72b", "glm-5", "gemini-3.5-flash", "deepseek-r1:8b", "deepseek-coder:6.7b", "deepseek-v2"],
        *["moonshot-v1-8k", "gpt-6", "gpt2", "openchat-o3", "open_llama_3b", "llama-30b", "codestral-2508"],
        *["my-own-model", "", ":", "/", "ft:", "smollm2:135m", "yi:34b", "qwen-plus"],
    ],
}


@pytest.mark.parametrize(
    ("model", "encoding"), [(model, encoding) for encoding, models in FAMILIES.items() for model in models]
)
def test_a_family_is_known_by_its_name_or_not_at_all(model: str, encoding: str | None) -> None:
    assert encoding_of(model) == encoding
    assert encoding is None or encoding in ENCODINGS


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("openai/gpt-4o", "gpt-4o"),
        ("qwen2.5:7b-instruct-q4_K_M", "qwen2.5"),
        ("us.anthropic.claude-3-haiku-20240307-v1:0", "claude-3-haiku-20240307-v1"),
        ("anthropic.claude-3-haiku", "claude-3-haiku"),
        ("ft:gpt-4o-mini:org::id", "gpt-4o-mini"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet"),
        ("accounts/fireworks/models/llama-v3p1-8b-instruct", "llama-v3p1-8b-instruct"),
        (" GPT-4o ", "gpt-4o"),
        ("llama3.2", "llama3.2"),
        ("", ""),
    ],
)
def test_a_bare_name_has_neither_provider_nor_tag(model: str, name: str) -> None:
    assert bare_name(model) == name


NAMES = [model for models in FAMILIES.values() for model in models]


@settings(deadline=None)
@given(st.text(max_size=40) | st.sampled_from(NAMES).map(lambda name: name + "x"))
def test_no_name_is_too_odd(model: str) -> None:
    assert encoding_of(model) is None or encoding_of(model) in ENCODINGS
    assert counter_of(model).text("hello") > 0
    assert images_of(model).tokens(None, low=False) > 0


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        ("gpt-4o", 1.0),
        ("my-own-model", 1.0),
        *(
            (f"claude-{name}", 1.15)
            for name in ("2.1", "instant-1.2", "3-opus-20240229", "3-5-sonnet-latest")
        ),
        *((f"claude-{name}", 1.15) for name in ("sonnet-4-5-20250929", "opus-4-1", "4-sonnet", "haiku-4.5")),
        *((f"anthropic/claude-{name}", 1.15) for name in ("opus-4.6", "sonnet-4", "opus-4-20250514")),
        *(
            (f"claude-{name}", 1.5)
            for name in ("opus-4-7", "opus-4.8", "sonnet-5", "opus-5-5", "fable-5", "opus")
        ),
    ],
)
def test_claude_is_estimated_higher_by_generation(model: str, factor: float) -> None:
    assert token_factor(model) == factor
    text = "a sentence of some length, to be counted. " * 20
    assert counter_of(model).text(text) >= factor * counter_for(encoding_of(model)).text(text)


@pytest.mark.parametrize(
    ("model", "formula"),
    [
        ("gpt-4o", Tiles()),
        ("openai/gpt-4o-mini", Tiles(2833, 5667)),
        ("gpt-4.1", Tiles()),
        ("gpt-4.1-mini-2025-04-14", Patches(1.62)),
        ("gpt-5", Tiles(70, 140)),
        ("gpt-5-nano", Patches(2.46)),
        ("o1", Tiles(75, 150)),
        ("o4-mini", Patches(1.72)),
        ("claude-3-5-sonnet", Area()),
        ("claude-opus-4-7", Area(2576, 4784)),
        ("llava:7b", Dearest()),
    ],
)
def test_images_cost_what_the_model_charges(model: str, formula: ImageFormula) -> None:
    assert images_of(model) == formula


@pytest.mark.parametrize(
    ("model", "base_url", "window"),
    [
        ("gpt-4o", "", 128_000),
        ("openai/gpt-4o", "", 128_000),
        ("gpt-4o-2024-08-06", "https://api.openai.com/v1", 128_000),
        ("claude-sonnet-4-5", "", 200_000),
        ("anthropic/claude-sonnet-4-5", "https://gateway.example.org/v1", 200_000),
        ("kimi-k2-0905-preview", "https://api.moonshot.ai/v1", 262_144),
        ("no-such-model", "", None),
        ("no-such-model", "https://api.openai.com/v1", None),
        ("", "", None),
        # Whatever the model could do, its server decides.
        ("Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1", None),
        ("gpt-4o", "http://localhost:4000/v1", None),
    ],
)
def test_a_window_is_known_or_it_is_not(model: str, base_url: str, window: int | None) -> None:
    assert window_of_model(model, base_url) == window


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("qwen3:8b", ""),
        ("qwen3:8b", "http://localhost:11434/v1"),
        ("qwen3", "http://192.168.1.7:11434/v1"),
        ("gpt-oss:20b", "http://box.lan:8080/v1"),
        ("hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M", "http://localhost:11434/v1/"),
    ],
)
def test_ollama_has_the_window_it_serves_and_not_the_models(model: str, base_url: str) -> None:
    assert window_of_model(model, base_url) == OLLAMA_WINDOW


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("openai/gpt-oss-120b:free", ""),
        ("openai/gpt-oss-120b:cerebras", "https://router.example.org/v1"),
        ("gpt-oss:120b-cloud", ""),
        ("anthropic.claude-3-haiku-20240307-v1:0", ""),
        ("ft:gpt-4o-mini-2024-07-18:org::id", ""),
    ],
)
def test_a_colon_alone_does_not_make_it_ollama(model: str, base_url: str) -> None:
    assert window_of_model(model, base_url) != OLLAMA_WINDOW


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(1_000_000, 0), 2.50),
        (Usage(0, 1_000_000), 10.00),
        (Usage(1_000_000, 0, cached=1_000_000), 1.25),
        (Usage(100_000, 10_000, cached=60_000), 0.10 + 0.10 + 0.075),
        (Usage(), 0.0),
    ],
)
@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("gpt-4o", ""),
        ("openai/gpt-4o", ""),
        ("gpt-4o", "https://api.openai.com/v1"),
        ("gpt-4o", "https://gateway.example.org/v1"),
    ],
)
def test_a_usage_costs_what_the_table_says_and_cached_tokens_less(
    model: str, base_url: str, usage: Usage, dollars: float
) -> None:
    assert cost_of(model, usage, base_url) == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("my-own-model", ""),
        ("", ""),
        ("qwen3:8b", "http://192.168.1.7:11434/v1"),
        ("gpt-4o", "http://localhost:4000/v1"),
        ("gpt-4o", "http://127.0.0.1:4000/v1"),
    ],
)
def test_a_price_that_nobody_knows_is_none_and_not_nothing(model: str, base_url: str) -> None:
    assert cost_of(model, Usage(1000, 10), base_url) is None


def test_a_report_that_cannot_be_has_no_price() -> None:
    assert cost_of("gpt-4o", Usage(1000, 10, cached=2000)) is None, "more cached than there were"


OWN = {"gpt-4o": ModelPrice(1, 2, 0.1), "my-own-model": ModelPrice(4, 8), "free": ModelPrice(0, 0)}


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("gpt-4o", Usage(1_000_000, 0), 1.0),
        ("gpt-4o", Usage(1_000_000, 500_000, cached=1_000_000), 0.1 + 1.0),
        ("my-own-model", Usage(1_000_000, 1_000_000, cached=400_000), 12.0),
        ("free", Usage(1_000_000, 1_000_000), 0.0),
        ("my-own-model", Usage(10, 0, cached=20), None),
        ("other", Usage(10, 1), None),
    ],
)
@pytest.mark.parametrize("base_url", ["", "http://127.0.0.1:4000/v1", "https://gateway.example.org/v1"])
def test_a_persons_own_prices_win_wherever_the_model_runs(
    model: str, usage: Usage, dollars: float | None, base_url: str
) -> None:
    cost = cost_of(model, usage, base_url, OWN)
    assert cost == (dollars if dollars is None else pytest.approx(dollars))
