from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from perdure.chat.forms import FILLER, OPENING, Form
from perdure.chat.messages import Message
from perdure.chat.tokens import counter_for
from perdure.errors import EndpointBroken, EndpointError
from perdure.models.client import ModelRequest, Piece, Reply, Retrying, Text
from perdure.models.endpoint import EndpointClient
from scripted_endpoint import (
    Answer,
    Plain,
    Raw,
    Request,
    Scripted,
    ScriptedEndpoint,
    alternating_as_gemma,
    alternating_as_mistral,
    system_role,
    user_first,
    wrong_messages,
)

pytestmark = pytest.mark.anyio

Check = Callable[[dict[str, Any]], str | None]

CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "4"}
SYSTEM = {"role": "system", "content": "be brief"}
WELL = {"role": "assistant", "content": "well"}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


#: A conversation that breaks every rule: begun in the middle, interrupted, spoken twice.
BROKEN = [SYSTEM, CALLS, RESULT, user("stop"), user("go on"), WELL, CALLS, RESULT]
TALK = [SYSTEM, user("hello"), user("are you there?")]

LLAMA = (
    "\n------------\nWhile executing CallExpression at line 19, column 27 in source:\n...% 2 == 0) -%}↵  "
    "{{ raise_exception('SAID') }}↵{%- endif -%}↵{%- if messages[0]['role'] == 'system' -%}...\n"
    "                                           ^\nError: Jinja Exception: SAID"
)
#: How servers wrap what a template says.
WRAPPINGS: dict[str, Callable[[str], Scripted]] = {
    "vLLM": lambda said: Plain(
        400, {"object": "error", "message": said, "type": "BadRequestError", "param": None, "code": 400}
    ),
    "newer vLLM": lambda said: Plain(
        400, {"error": {"message": f"{said} {said}", "type": "BadRequestError"}}
    ),
    "llama.cpp": lambda said: Plain(
        500, {"error": {"code": 500, "message": LLAMA.replace("SAID", said), "type": "server_error"}}
    ),
    "TGI": lambda said: Plain(
        422,
        {
            "error": f"Template error: invalid operation: {said} (in <string>:1)",
            "error_type": "template_error",
        },
    ),
    "LM Studio": lambda said: Raw(
        [
            "event: error\ndata: "
            + json.dumps({"error": {"message": f'Error rendering prompt with jinja template: "{said}".'}})
            + "\n\n"
        ]
    ),
    "plain": lambda said: Plain(500, f"jinja2.exceptions.TemplateError: {said}", {}, "text/plain"),
}


def template(check: Check, wrapped: Callable[[str], Scripted]) -> Callable[[Request], Scripted]:
    """A server that renders with a template that checks so."""

    def answered(request: Request) -> Scripted:
        said = check(request.body)
        return Answer("fine") if said is None else wrapped(said)

    return answered


async def ask(client: EndpointClient, messages: list[Message]) -> list[Piece]:
    return [piece async for piece in client.stream(ModelRequest(messages))]


def client_of(endpoint: ScriptedEndpoint) -> EndpointClient:
    return EndpointClient(endpoint.base_url, "scripted", counter=counter_for(None))


@pytest.mark.parametrize("wrapped", WRAPPINGS.values(), ids=WRAPPINGS)
@pytest.mark.parametrize(
    ("check", "messages", "form"),
    [
        (alternating_as_mistral, BROKEN, Form(alternate=True)),
        (alternating_as_mistral, TALK, Form(alternate=True)),
        (alternating_as_gemma, TALK, Form(alternate=True, system=False)),
        (alternating_as_gemma, [SYSTEM, user("hello")], Form(system=False)),
        (system_role, TALK, Form(system=False)),
        (user_first, BROKEN, Form(user_first=True)),
    ],
)
async def test_the_form_is_learnt_from_a_refusal_and_kept(
    check: Check, messages: list[Message], form: Form, wrapped: Callable[[str], Scripted]
) -> None:
    with ScriptedEndpoint(template(check, wrapped)) as endpoint:
        client = client_of(endpoint)
        assert client.form == Form()
        first = await ask(client, messages)
        assert client.form == form
        sent = len(endpoint.requests)
        second = await ask(client, [*messages, WELL, user("and now?")])
        assert len(endpoint.requests) == sent + 1
        await client.aclose()
    for pieces in (first, second):
        assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == "fine"
        assert not [piece for piece in pieces if isinstance(piece, Retrying)]
        assert isinstance(pieces[-1], Reply)
    for request in endpoint.requests[sent - 1 :]:
        assert check(request.body) is None
        assert wrong_messages(request.body) is None


#: Other words for the same, each as it was seen.
WORDINGS = {
    "Conversation roles must alternate user/assistant/user/assistant/...": Form(alternate=True),
    'messages: roles must alternate between "user" and "assistant"': Form(alternate=True),
    "After the (optional) system message(s), user or tool message(s) should alternate with assistant "
    "message(s).": Form(alternate=True),
    "A conversation must alternate between user and assistant roles. Make sure the conversation alternates "
    "between user and assistant roles and try again.": Form(alternate=True),
    "Please ensure that multiturn requests alternate between user and model.": Form(alternate=True),
    "Please ensure that function call turn comes immediately after a user turn or after a function response "
    "turn.": Form(alternate=True),
    "Unexpected role 'user' after role 'tool'": Form(alternate=True),
    "deepseek-reasoner does not support successive user or assistant messages (messages[1] and messages[2] "
    "in your input). You should interleave the user/assistant messages in the message sequence.": Form(
        alternate=True
    ),
    "First message must be a user message": Form(user_first=True),
    "Expected the first message to be from the user": Form(user_first=True),
    'messages: first message must use the "user" role': Form(user_first=True),
    "A conversation must start with a user message. Try again with a conversation that starts with a user "
    "message.": Form(user_first=True),
    "No user query found in messages.": Form(user_first=True),
    "System role not supported": Form(system=False),
    "System messages are not supported by this model": Form(system=False),
    "This model does not support the system role": Form(system=False),
    "Only user and assistant roles are supported!": Form(system=False),
    "'messages[0].role' does not support 'system' with this model.": Form(system=False),
}


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(("said", "form"), WORDINGS.items(), ids=WORDINGS)
async def test_other_words_teach_the_same(said: str, form: Form, status: int) -> None:
    refused = Plain(status, {"error": {"message": said, "type": "invalid_request_error"}})
    with ScriptedEndpoint([refused, Answer("fine")]) as endpoint:
        client = client_of(endpoint)
        await ask(client, BROKEN)
        await client.aclose()
    assert client.form == form
    assert len(endpoint.requests) == 2


async def test_what_is_sent_in_form_says_what_was_said() -> None:
    with ScriptedEndpoint([Answer("fine")], refuses=[alternating_as_mistral]) as endpoint:
        client = client_of(endpoint)
        await ask(client, BROKEN)
        await client.aclose()
    assert endpoint.requests[-1].messages == [
        SYSTEM,
        user(OPENING[0]),
        CALLS,
        RESULT,
        {"role": "assistant", "content": FILLER[0]},
        user("stop\n\ngo on"),
        {**CALLS, "content": "well"},
        RESULT,
    ]


async def test_an_answer_that_is_left_out_lets_no_requests_stand_together() -> None:
    with ScriptedEndpoint([Answer("fine")], refuses=[alternating_as_mistral]) as endpoint:
        client = client_of(endpoint)
        await ask(client, [user("a"), {"role": "assistant", "content": " "}, user("b")])
        await client.aclose()
    assert endpoint.requests[-1].messages == [user("a\n\nb")]


async def test_an_endpoint_that_goes_on_refusing_gets_the_last_word() -> None:
    said = "Conversation roles must alternate user/assistant/user/assistant/..."
    with ScriptedEndpoint([Plain(400, {"error": {"message": said}})]) as endpoint:
        client = client_of(endpoint)
        with pytest.raises(EndpointError, match="must alternate"):
            await ask(client, TALK)
        await client.aclose()
    assert 2 <= len(endpoint.requests) <= 4


async def test_a_server_that_fails_for_another_reason_teaches_nothing() -> None:
    said = "failed to allocate the system prompt's cache for user and assistant roles"
    failed = Plain(500, {"error": {"message": said}})
    with ScriptedEndpoint([failed]) as endpoint:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        client = EndpointClient(endpoint.base_url, "scripted", counter=counter_for(None), sleep=sleep)
        with pytest.raises(EndpointBroken):
            await ask(client, TALK)
        await client.aclose()
    assert client.form == Form()
    assert waits


async def test_what_was_shown_already_is_never_repeated_for_a_lesson() -> None:
    said = {"error": {"message": "System role not supported", "code": 400}}
    chunk = 'data: {"choices": [{"index": 0, "delta": {"content": "partial "}}]}\n\n'
    with ScriptedEndpoint([Raw([chunk, f"data: {json.dumps(said)}\n\n"])]) as endpoint:
        client = client_of(endpoint)
        with pytest.raises(EndpointError):
            await ask(client, TALK)
        await client.aclose()
    assert len(endpoint.requests) == 1
