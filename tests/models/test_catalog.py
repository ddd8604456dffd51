from __future__ import annotations

import pytest

from perdure.chat.tokens import ENCODINGS
from perdure.models.catalog import encoding_of, window_of_model


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("o3", "o200k_base"),
        ("o1-preview", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("gpt-oss:20b", "gpt-oss"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        ("llama3.2:3b", "llama3"),
        ("llama2:13b", "llama2"),
        ("qwen2.5:7b-instruct-q4_K_M", "qwen3"),
        ("Qwen/Qwen3-32B", "qwen3"),
        ("deepseek-chat", "deepseek_v3"),
        ("deepseek-r1-distill-llama-70b", "llama3"),
        ("deepseek-r1-distill-qwen-7b", "qwen3"),
        ("mistral-large-latest", "mistral_v3"),
        ("mixtral-8x7b", "mistral_v1"),
        ("zai-org/GLM-4.6", "glm4"),
        ("kimi-k2-instruct", "kimi_k2"),
        ("phi4:14b", "phi4"),
        ("claude-sonnet-4-5", None),
        ("gemini-2.5-pro", None),
        ("my-own-model", None),
        ("ollama3000", None),
        ("", None),
    ],
)
def test_a_family_is_known_by_its_name_or_not_at_all(model: str, encoding: str | None) -> None:
    assert encoding_of(model) == encoding
    assert encoding is None or encoding in ENCODINGS


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o", 128_000),
        ("openai/gpt-4o", 128_000),
        ("claude-sonnet-4-5", 200_000),
        ("no-such-model", None),
        ("", None),
    ],
)
def test_a_window_is_known_or_it_is_not(model: str, window: int | None) -> None:
    assert window_of_model(model) == window
