from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import (
    AuthenticationRefused,
    ContextOverflow,
    EndpointBroken,
    EndpointError,
    EndpointRefused,
    ModelUnknown,
    RateLimited,
)
from perdure.models.refusals import error_in, refusal, refusal_in_stream, retry_after


def read(status: int, body: object, **headers: str) -> EndpointError:
    text = body if isinstance(body, str) else json.dumps(body)
    return refusal(status, headers, text, url="http://x/v1", model="some-model")


def openai(message: str, type: str = "invalid_request_error", code: str | None = None) -> dict[str, object]:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


OVERFLOWS = [
    (
        400,
        openai(
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9410 "
            "tokens. Please reduce the length of the messages.",
            code="context_length_exceeded",
        ),
        8192,
        9410,
    ),
    (
        400,
        openai(
            "This model's maximum context length is 4097 tokens, however you requested 5360 tokens (1360 in "
            "your prompt; 4000 for the completion). Please reduce your prompt; or completion length."
        ),
        4097,
        1360,
    ),
    (
        400,
        openai(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300123 tokens."
        ),
        272000,
        300123,
    ),
    (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 2048 tokens. However, you requested 2400 tokens "
            "(2200 in the messages, 200 in the completion). Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "code": 400,
        },
        2048,
        2200,
    ),
    (
        400,
        {
            "error": {
                "message": "The decoder prompt (length 40960) is longer than the maximum model length of 32768. Make "
                "sure that `max_model_len` is no smaller than the number of text tokens.",
                "type": "BadRequestError",
                "code": 400,
            }
        },
        32768,
        40960,
    ),
    (
        400,
        openai(
            "You passed 33001 input tokens and requested 1000 output tokens. However, the model's context length "
            "is only 32768 tokens, resulting in a maximum input length of 31768 tokens. Please reduce the length "
            "of the input prompt."
        ),
        32768,
        33001,
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9031,
                "n_ctx": 8192,
            }
        },
        8192,
        9031,
    ),
    (
        500,
        {"error": "the request exceeds the available context size. try increasing the context size"},
        None,
        None,
    ),
    (400, {"error": "input length exceeds the context length"}, None, None),
    (400, {"error": "prompt too long; exceeded max context length by 1204 tokens"}, None, None),
    (
        400,
        openai(
            "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: "
            "OpenAIException - This model's maximum context length is 16385 tokens. However, your messages "
            "resulted in 20000 tokens."
        ),
        16385,
        20000,
    ),
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
        },
        200000,
        210000,
    ),
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease "
                "input length or `max_tokens` and try again",
            },
        },
        200000,
        190000,
    ),
    (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        1048576,
        1048577,
    ),
    (
        400,
        {
            "object": "error",
            "message": "Prompt contains 40122 tokens and 0 draft tokens, too large for model with 32768 maximum "
            "context length",
            "type": "invalid_request_prompt_too_large",
            "code": "3051",
        },
        32768,
        40122,
    ),
    (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` "
            "tokens and 100 `max_new_tokens`",
            "error_type": "validation",
        },
        4096,
        5000,
    ),
    (413, openai("Request too large: please reduce the length of the messages or completion."), None, None),
    (
        400,
        openai("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
        None,
        None,
    ),
    (
        400,
        openai(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140233 tokens "
            '(140233 of text input). Please reduce the length of either one, or use the "middle-out" transform.'
        ),
        131072,
        140233,
    ),
    (
        400,
        openai(
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 39152 tokens "
            "(6152 of text input, 1000 of tool input, 32000 in the output). Please reduce the length of either "
            "one."
        ),
        32768,
        7152,
    ),
    (
        400,
        openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is "
            "2048 tokens and your request has 204 input tokens (4096 > 2048 - 204).",
            type="BadRequestError",
        ),
        2048,
        204,
    ),
    (
        400,
        openai(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a "
            "total of 4300 tokens: 204 tokens from the input messages and 4096 tokens for the completion."
        ),
        4096,
        204,
    ),
    (
        400,
        openai(
            "This model's maximum context length is 4096 tokens. Please reduce the length of the messages."
        ),
        4096,
        None,
    ),
    (
        400,
        {"message": "The input (50000 tokens) is longer than the model's context length (32768 tokens)."},
        32768,
        50000,
    ),
]


@pytest.mark.parametrize(("status", "body", "limit", "requested"), OVERFLOWS)
def test_a_context_length_error_is_known_in_every_wording(
    status: int, body: object, limit: int | None, requested: int | None
) -> None:
    error = read(status, body)
    assert isinstance(error, ContextOverflow)
    assert error.limit == limit
    assert error.requested == requested


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            openai("max_tokens is too large: 100000. This model supports at most 16384 completion tokens."),
            EndpointRefused,
        ),
        (400, openai("Invalid 'max_tokens': must be at least 1"), EndpointRefused),
        (
            429,
            openai("Rate limit reached: Limit 30000 tokens per minute, requested 31000. Reduce the length."),
            RateLimited,
        ),
        (
            429,
            openai(
                "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
                code="rate_limit_exceeded",
            ),
            RateLimited,
        ),
        (429, openai("You exceeded your current quota", code="insufficient_quota"), RateLimited),
        (400, openai("Invalid value for 'temperature': expected at most 2"), EndpointRefused),
        (
            400,
            openai("An assistant message with 'tool_calls' must be followed by tool messages"),
            EndpointRefused,
        ),
        (401, openai("Incorrect API key provided"), AuthenticationRefused),
        (403, {"detail": "Forbidden"}, AuthenticationRefused),
        (
            404,
            openai(
                "The model `some-model` does not exist or you do not have access to it.",
                code="model_not_found",
            ),
            ModelUnknown,
        ),
        (404, {"error": "model 'some-model' not found"}, ModelUnknown),
        (404, {"object": "error", "message": "The model `x` does not exist.", "code": 404}, ModelUnknown),
        (400, openai("Invalid model: some-model"), ModelUnknown),
        (404, {"detail": "Not Found"}, EndpointBroken),
        (404, "404 page not found", EndpointBroken),
        (404, "<html><head><title>404 Not Found</title></head></html>", EndpointBroken),
        (500, "Internal Server Error", EndpointBroken),
        (502, "<html><title>502 Bad Gateway</title></html>", EndpointBroken),
        (400, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}, EndpointRefused),
    ],
)
def test_other_refusals_are_what_they_are(status: int, body: object, kind: type[EndpointError]) -> None:
    error = read(status, body)
    assert type(error) is kind
    assert "\n" not in error.say("en")
    assert error.say("zh") != error.say("en")


def test_what_the_endpoint_said_is_in_the_error() -> None:
    assert "field required" in str(read(400, {"detail": [{"loc": ["body"], "msg": "field required"}]}))
    assert "502 Bad Gateway" in str(read(502, "<html><title>502 Bad\n Gateway</title></html>"))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "maximum context length is 4096 tokens", "code": 400}, ContextOverflow),
        ({"message": "slow down", "type": "rate_limit_error"}, RateLimited),
        ({"message": "overloaded", "code": 503}, EndpointBroken),
        ("just a text", EndpointBroken),
        (None, EndpointBroken),
        ({"message": "no", "code": "401"}, AuthenticationRefused),
    ],
)
def test_an_error_inside_a_stream_is_read_the_same_way(error: object, kind: type[EndpointError]) -> None:
    assert type(refusal_in_stream(error, url="u", model="m")) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "bad tool schema", "type": "invalid_request_error", "code": None}, EndpointRefused),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimited),
        ({"message": "quota", "status": "RESOURCE_EXHAUSTED"}, RateLimited),
        ({"message": "no", "type": "authentication_error"}, AuthenticationRefused),
        ({"message": "gone", "type": "server_error"}, EndpointBroken),
    ],
)
def test_an_error_inside_a_stream_has_the_status_of_its_type(
    error: object, kind: type[EndpointError]
) -> None:
    assert type(refusal_in_stream(error, url="u", model="m")) is kind


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ({"error": {"message": "x"}}, {"message": "x"}),
        ({"object": "error", "message": "x"}, {"object": "error", "message": "x"}),
        ({"detail": "x"}, {"detail": "x"}),
        ({"choices": [{"finish_reason": "error", "error": {"code": 502}}]}, {"code": 502}),
        ({"choices": [{"message": {"content": "x"}}], "error": None}, None),
        ({"choices": [], "usage": {}}, None),
        ({"choices": [None]}, None),
        ({}, None),
    ],
)
def test_an_error_is_found_in_each_place_a_chunk_may_hold_it(chunk: dict[str, object], said: object) -> None:
    assert error_in(chunk) == said


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "not permitted"}]},
        {"message": {"detail": [{"loc": ["body", "stream_options"], "msg": "not permitted"}]}},
        {"error": {"message": "Unknown parameter", "param": "stream_options"}},
        {"error": {"message": "Provider returned error", "metadata": {"raw": "what is stream_options?"}}},
        "Failed to deserialize the JSON body: unknown field `stream_options`",
    ],
)
def test_the_field_that_is_refused_is_in_the_words(body: object) -> None:
    error = read(400, body)
    assert type(error) is EndpointRefused
    assert "stream_options" in str(error)


def test_a_gateway_that_hides_the_providers_words_is_seen_through() -> None:
    raw = json.dumps(openai("This model's maximum context length is 4096 tokens."))
    metadata = {"raw": raw, "provider_name": "X"}
    error = read(400, {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}})
    assert isinstance(error, ContextOverflow)
    assert error.limit == 4096


def test_a_quota_that_fills_up_again_is_told_from_one_that_is_spent() -> None:
    again = read(429, openai("Quota exceeded for requests per minute"), **{"Retry-After": "12"})
    spent = read(429, openai("no money left", code="insufficient_quota"))
    assert (again.facts["spent"], spent.facts["spent"]) == (False, True)


NOW = datetime(2026, 12, 2, 8, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "75"}, 75),
        ({"retry-after": "1.5"}, 1.5),
        ({"Retry-After": "Wed, 02 Dec 2026 08:00:30 GMT"}, 30),
        ({"Retry-After": "Wed, 02 Dec 2026 07:00:00 GMT"}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "-5"}, None),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_each_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@given(
    st.integers(400, 599),
    st.text(max_size=200),
    st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=2),
)
def test_no_answer_makes_it_fail(status: int, body: str, headers: dict[str, str]) -> None:
    error = refusal(status, headers, body, url="u", model="m", secret="sk-secret")
    assert isinstance(error, EndpointError)
    assert error.say("en")


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["error", "message", "detail", "code", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_no_shape_of_json_makes_it_fail(body: object) -> None:
    assert isinstance(read(400, body), EndpointError)
    assert isinstance(refusal_in_stream(body, url="u", model="m"), EndpointError)
