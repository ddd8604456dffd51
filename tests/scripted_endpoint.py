"""A scripted endpoint: real HTTP over loopback, strict as real providers are.

It answers what the test scripted, in order, and refuses with a 400 whatever a provider would
refuse. What came in is in `requests`, what it refused in `refusals`, and what a judge asked in `judged`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Call = tuple[str, str, Any]  # id, name, arguments (an object, or the text itself)


@dataclass
class Answer:
    """A completion, streamed or whole as the request asks."""

    text: str = ""
    calls: Sequence[Call] = ()
    finish: str | None = None
    usage: dict[str, Any] | None = None
    delay: float = 0.0
    reasoning: str = ""
    pieces: int = 3
    #: Answered only when as many requests as it is for wait at the same time.
    meets: threading.Barrier | None = None

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
                for id, name, arguments in self.calls
            ]
        return message

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")

    def chunks(self, usage: dict[str, Any] | None) -> Iterable[str]:
        message = self.message()
        calls = message.pop("tool_calls", [])
        text = message["content"] or ""
        if self.reasoning:
            yield _chunk({"role": "assistant", "reasoning_content": self.reasoning})
        size = max(1, len(text) // self.pieces)
        for at in range(0, len(text), size):
            yield _chunk({"content": text[at : at + size]})
        for index, call in enumerate(calls):
            function = call["function"]
            head = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
            yield _chunk({"tool_calls": [head]})
            arguments = function["arguments"]
            for at in range(0, len(arguments), 7):
                yield _chunk(
                    {"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 7]}}]}
                )
        yield _chunk({}, self.finish_reason)
        if usage:
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"


@dataclass
class Raw:
    """Network chunks as they are, each flushed alone, taken as they are sent. ``cut``: the connection
    breaks behind them; ``pause``: seconds between them; ``stall``: seconds of silence behind them."""

    chunks: Iterable[str | bytes]
    cut: bool = False
    pause: float = 0.0
    stall: float = 0.0
    content_type: str | None = "text/event-stream"


@dataclass
class Plain:
    """Any other answer: an error, HTML, JSON."""

    status: int
    body: str | dict[str, Any] = ""
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


Scripted = Answer | Raw | Plain

#: What a judge says that has nothing to object to.
SATISFIED = Answer('{"satisfied": true, "missing": [], "contradicted": []}')


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    time: float

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


class ScriptedEndpoint:
    """``with ScriptedEndpoint([...]) as endpoint``. ``script`` is a list of answers, or a function
    of the request. ``refuses`` adds refusals to those every provider makes: functions from the
    body to what is wrong, or None. ``window`` with ``count`` refuses prompts over it. ``verdict`` is what a
    judge gets, or a function of its request."""

    def __init__(
        self,
        script: Sequence[Scripted] | Callable[[Request], Scripted],
        *,
        refuses: Sequence[Callable[[dict[str, Any]], str | None]] = (),
        window: int | None = None,
        count: Callable[[dict[str, Any]], int] | None = None,
        models: Sequence[dict[str, Any]] = ({"id": "scripted"},),
        api_key: str | None = None,
        verdict: Scripted | Callable[[Request], Scripted] = SATISFIED,
    ) -> None:
        self.verdict = verdict
        self.judged: list[Request] = []
        self.script = script
        self.refuses = refuses
        self.window = window
        self.count = count or (lambda body: len(json.dumps(body, ensure_ascii=False).encode()))
        self.models = models
        self.api_key = api_key
        self.requests: list[Request] = []
        self.refusals: list[str] = []
        self.closed_early = 0
        self._lock = threading.Lock()
        self._answered = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                pass

            def do_GET(self) -> None:
                _send(self, Plain(200, {"object": "list", "data": list(endpoint.models)}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    endpoint._answer(self, Request(self.path, headers, body, time.monotonic()))
                except (BrokenPipeError, ConnectionResetError):
                    endpoint.closed_early += 1
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, request: Request) -> None:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            error = {"message": "Incorrect API key provided", "code": "invalid_api_key"}
            return _send(handler, Plain(401, {"error": error}))
        if not request.path.endswith("/chat/completions"):
            return _send(handler, Plain(404, "<html><title>404 Not Found</title></html>", {}, "text/html"))
        with self._lock:
            judging = request.headers.get("x-perdure-purpose") == "judge"
            (self.judged if judging else self.requests).append(request)
            if wrong := self._wrong(request.body):
                self.refusals.append(wrong)
                error = {"message": wrong, "type": "invalid_request_error", "code": None}
                return _send(handler, Plain(400, {"error": error}))
            if judging:
                scripted = self.verdict(request) if callable(self.verdict) else self.verdict
            elif callable(self.script):
                scripted = self.script(request)
            else:
                scripted = self.script[min(self._answered, len(self.script) - 1)]
            self._answered += not judging
        if isinstance(scripted, Answer):
            time.sleep(scripted.delay)
            if scripted.meets:
                scripted.meets.wait(30)
            usage = scripted.usage or {"prompt_tokens": self.count(request.body), "completion_tokens": 5}
            return _complete(handler, request, scripted, usage)
        return _send(handler, scripted) if isinstance(scripted, Plain) else _send_raw(handler, scripted)

    def _wrong(self, body: dict[str, Any]) -> str | None:
        checks = (wrong_messages, *self.refuses)
        if found := next((wrong for check in checks if (wrong := check(body))), None):
            return found
        if self.window is None:
            return None
        prompt, answer = self.count(body), body.get("max_tokens") or 0
        if prompt + answer <= self.window:
            return None
        return (
            f"This model's maximum context length is {self.window} tokens. However, you requested "
            f"{prompt + answer} tokens ({prompt} in the messages, {answer} in the completion). "
            "Please reduce the length of the messages or completion."
        )


def wrong_messages(body: dict[str, Any]) -> str | None:
    """What every provider refuses, in OpenAI's words."""
    messages = body.get("messages")
    if not messages:
        return "[] is too short - 'messages'"
    open_ids: list[str] = []
    for at, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if role not in {"system", "developer", "user", "assistant", "tool"}:
            return f"Invalid value: {role!r} - 'messages[{at}].role'"
        if role == "tool":
            if not open_ids:
                return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            if message.get("tool_call_id") not in open_ids:
                return f"Invalid parameter: 'tool_call_id' of messages[{at}] not found in 'tool_calls'"
            open_ids.remove(message["tool_call_id"])
            if not isinstance(content, str | list):
                return f"Invalid type for 'messages[{at}].content': expected a string"
            continue
        if open_ids:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to "
                f"each 'tool_call_id'. The following did not have response messages: {open_ids}"
            )
        calls = message.get("tool_calls")
        if role != "assistant" and (calls or not content):
            return f"Invalid value for 'messages[{at}].content': expected a non-empty string, got {content!r}"
        if role == "assistant" and not calls and not content:
            return f"Invalid value for 'messages[{at}].content': expected a string, got null"
        if calls is not None and not calls:
            return f"[] is too short - 'messages.{at}.tool_calls'"
        for call in calls or ():
            if wrong := _wrong_call(call, at):
                return wrong
        open_ids = [call["id"] for call in calls or ()]
        if len(set(open_ids)) != len(open_ids):
            return f"Duplicate value for 'tool_call_id' in messages[{at}]"
    return f"'tool_calls' without results at the end: {open_ids}" if open_ids else None


def _wrong_call(call: dict[str, Any], at: int) -> str | None:
    function = call.get("function") or {}
    if not call.get("id") or call.get("type") != "function" or not function.get("name"):
        return f"Missing required parameter: 'messages[{at}].tool_calls[].id'"
    try:
        whole = isinstance(json.loads(function["arguments"]), dict)
    except (KeyError, TypeError, ValueError):
        whole = False
    return None if whole else f"messages[{at}].tool_calls[].function.arguments must be a JSON object"


def null_content(body: dict[str, Any]) -> str | None:
    """A server that wants a string."""
    bad = any("content" not in m or m["content"] is None for m in body["messages"])
    return "messages.content: Input should be a valid string" if bad else None


def empty_content_beside_calls(body: dict[str, Any]) -> str | None:
    bad = any(m.get("content") == "" for m in body["messages"])
    return "messages: text content blocks must be non-empty" if bad else None


def unknown_field(name: str, said: str = "") -> Callable[[dict[str, Any]], str | None]:
    """A server that doesn't know a field of the request."""
    return lambda body: (said or f"Unrecognized request argument supplied: {name}") if name in body else None


def system_role(body: dict[str, Any]) -> str | None:
    bad = any(message["role"] == "system" for message in body["messages"])
    return "System role not supported" if bad else None


def alternating_as_mistral(body: dict[str, Any]) -> str | None:
    """Mistral's templates: tools may stand between, the others take turns, a user first."""
    messages = body["messages"]
    counted = messages[1:] if messages and messages[0]["role"] == "system" else messages
    counted = [m for m in counted if m["role"] != "tool" and not m.get("tool_calls")]
    bad = any((m["role"] == "user") != (at % 2 == 0) for at, m in enumerate(counted))
    return (
        "After the optional system message, conversation roles must alternate user and assistant roles "
        "except for tool calls and results."
        if bad
        else None
    )


def alternating_as_gemma(body: dict[str, Any]) -> str | None:
    """Gemma's, Llama 2's and the oldest of Mistral's: every message counts, a system message too."""
    bad = any((m["role"] == "user") != (at % 2 == 0) for at, m in enumerate(body["messages"]))
    return "Conversation roles must alternate user/assistant/user/assistant/..." if bad else None


def user_first(body: dict[str, Any]) -> str | None:
    others = [m for m in body["messages"] if m["role"] not in {"system", "developer"}]
    bad = bool(others) and others[0]["role"] != "user"
    return "First message must be a user message" if bad else None


def _complete(
    handler: BaseHTTPRequestHandler, request: Request, answer: Answer, usage: dict[str, Any]
) -> None:
    if request.body.get("stream"):
        asked = (request.body.get("stream_options") or {}).get("include_usage")
        return _send_raw(handler, Raw(list(answer.chunks(usage if asked else None))))
    choice = {"index": 0, "message": answer.message(), "finish_reason": answer.finish_reason}
    return _send(handler, Plain(200, {"object": "chat.completion", "choices": [choice], "usage": usage}))


def _send(handler: BaseHTTPRequestHandler, plain: Plain) -> None:
    body = plain.body if isinstance(plain.body, str) else json.dumps(plain.body)
    handler.send_response(plain.status)
    for name, value in plain.headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Type", plain.content_type)
    handler.send_header("Content-Length", str(len(body.encode())))
    handler.end_headers()
    handler.wfile.write(body.encode())


def _send_raw(handler: BaseHTTPRequestHandler, raw: Raw) -> None:
    handler.send_response(200)
    if raw.content_type:
        handler.send_header("Content-Type", raw.content_type)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in raw.chunks:
        data = chunk.encode() if isinstance(chunk, str) else chunk
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()
        time.sleep(raw.pause)
    time.sleep(raw.stall)
    if raw.cut:
        handler.close_connection = True
    else:
        handler.wfile.write(b"0\r\n\r\n")


def _chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "r1", "object": "chat.completion.chunk", "model": "scripted", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n"


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
