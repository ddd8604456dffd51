"""An endpoint of embeddings: real HTTP over loopback, strict as real providers are.

A text's vector counts its characters, so that equal texts have equal vectors and others don't. What
came in is in `requests`, what was refused in `refusals`.
"""

from __future__ import annotations

import base64
import json
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from scripted_endpoint import Plain, Raw

WIDTH = 64


@dataclass
class Embedding:
    """A request: what it asked, with which headers."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        texts: list[str] = self.body["input"]
        return texts


def counted(text: str) -> list[float]:
    """How often each character occurs, by its number modulo the width; its length and its beginning
    tell texts of the same characters apart."""
    vector = [0.0] * WIDTH
    for at, character in enumerate(text):
        vector[(ord(character) * 31 + at % 7) % WIDTH] += 1.0
    return vector


class EmbeddingsEndpoint:
    """``with EmbeddingsEndpoint() as endpoint``. ``texts`` and ``characters`` are the most that it takes;
    ``script`` answers before it does: a function of the request, or answers in order, None for its own."""

    def __init__(
        self,
        script: Sequence[Plain | Raw | None] | Callable[[Embedding], Plain | Raw | None] = (),
        *,
        texts: int = 2_048,
        characters: int = 8_192,
        too_long: Plain | None = None,
        knows_base64: bool = True,
        refuses_base64: bool = False,
        shuffled: bool = False,
        api_key: str | None = None,
    ) -> None:
        self.script = script
        self.most = (texts, characters)
        self.too_long = too_long
        self.knows_base64, self.refuses_base64 = knows_base64, refuses_base64
        self.shuffled = shuffled
        self.api_key = api_key
        self.requests: list[Embedding] = []
        self.refusals: list[str] = []
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    endpoint._send(self, endpoint._answer(Embedding(self.path, headers, body)))
                except (BrokenPipeError, ConnectionResetError):
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

    def _answer(self, request: Embedding) -> Plain | Raw:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            said = f"Incorrect API key provided: {request.headers.get('authorization')}"
            return Plain(401, {"error": {"message": said, "code": "invalid_api_key"}})
        if not request.path.endswith("/embeddings"):
            return Plain(404, "<html><title>404 Not Found</title></html>", {}, "text/html")
        with self._lock:
            at = len(self.requests)
            self.requests.append(request)
        if callable(self.script):
            scripted = self.script(request)
        else:
            scripted = self.script[at] if at < len(self.script) else None
        if scripted is not None:
            return scripted
        if wrong := self._wrong(request.body):
            self.refusals.append(wrong)
            if self.too_long and "tokens" in wrong:
                return self.too_long
            return Plain(400, {"error": {"message": wrong, "type": "invalid_request_error", "code": None}})
        return Plain(200, self.embeddings(request))

    def embeddings(self, request: Embedding) -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": at, "embedding": self._spelt(counted(text), request.body)}
            for at, text in enumerate(request.texts)
        ]
        usage = {"prompt_tokens": sum(map(len, request.texts)), "total_tokens": 0}
        data = data[1::2][::-1] + data[::2] if self.shuffled else data
        return {"object": "list", "data": data, "model": request.body["model"], "usage": usage}

    def _spelt(self, vector: list[float], body: dict[str, Any]) -> list[float] | str:
        if body.get("encoding_format") == "base64" and self.knows_base64:
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        return vector

    def _wrong(self, body: dict[str, Any]) -> str | None:
        """What providers refuse, in OpenAI's words."""
        texts, characters = self.most
        if unknown := body.keys() - {"model", "input", "encoding_format", "dimensions", "user"}:
            return f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}"
        if self.refuses_base64 and body.get("encoding_format") == "base64":
            return "encoding_format: Input should be 'float'"
        if not isinstance(body.get("input"), list) or not body["input"]:
            return "'$.input' is invalid. Please check the API reference."
        if not all(isinstance(text, str) and text for text in body["input"]):
            return "'$.input' is invalid. Please check the API reference."
        if len(body["input"]) > texts:
            return f"'$.input' is invalid: at most {texts} inputs in one request"
        if (longest := max(map(len, body["input"]))) > characters:
            return (
                f"This model's maximum context length is {characters} tokens, however you requested "
                f"{longest} tokens ({longest} in your prompt; 0 for the completion). "
                "Please reduce your prompt; or completion length."
            )
        return None

    def _send(self, handler: BaseHTTPRequestHandler, answer: Plain | Raw) -> None:
        if isinstance(answer, Raw):
            time.sleep(answer.stall)
            handler.close_connection = True
            return
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Type", answer.content_type)
        handler.send_header("Content-Length", str(len(body.encode())))
        handler.end_headers()
        handler.wfile.write(body.encode())
