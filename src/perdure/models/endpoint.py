"""One client for every OpenAI-compatible endpoint.

It sits on `httpx2`, which loads in a fifth of the openai SDK's time and is what that SDK itself
sits on; its parser of server-sent events splits lines only where the standard does. Retrying is
done here and nowhere else: a request is repeated while nothing of the answer has come, and a
stream that is cut in the middle is repeated as a whole, once.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import anyio

from perdure import __version__
from perdure.chat.forms import Form
from perdure.chat.tokens import TokenCounter
from perdure.config import NO_HTTP, NO_KEY, Secret, is_http, is_loopback
from perdure.errors import (
    AuthenticationRefused,
    ConfigError,
    ContextOverflow,
    EndpointBroken,
    EndpointError,
    EndpointUnreachable,
    RateLimited,
    StreamCut,
)
from perdure.models.assembly import Assembly
from perdure.models.client import ModelRequest, Piece, Retrying
from perdure.models.framing import events_or_text
from perdure.models.refusals import PASSING, error_in, masked, read_body, refusal, refusal_in_stream
from perdure.models.wire import Dialect, body_of, learn

if TYPE_CHECKING:
    import httpx2

#: Seconds: the first pause between two tries, the longest one, and the longest that an endpoint
#: may ask for before we give the turn back to the person instead.
FIRST_PAUSE, LONGEST_PAUSE, PATIENCE = 0.5, 20.0, 120.0
TRIES, TRIES_TO_CONNECT = 5, 3
#: Seconds for a stream that is complete to end.
TIDY_END = 0.2
#: Seconds that a list of models is waited for: it only saves the person a setting.
LISTING = 10.0
#: Bytes of an error's body that are read.
ERROR_BODY = 65_536

Sleep = Callable[[float], Awaitable[None]]


class EndpointClient:
    """`ModelClient` for the endpoint at ``base_url`` (usually ending in ``/v1``).

    Timeouts in seconds: ``connect_timeout`` for the connection, ``idle_timeout`` for silence
    while an answer is awaited. ``sleep`` is what waits between tries. Raises `EndpointError`, and
    `ConfigError` at once for a URL or a key that can't be sent.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        counter: TokenCounter,
        api_key: str = "",
        context_window: int | None = None,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        replay_reasoning: bool = False,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        if not is_http(base_url):
            raise ConfigError(NO_HTTP, value=base_url)
        api_key = api_key.strip()
        if not (api_key.isascii() and api_key.isprintable()):
            raise ConfigError(NO_KEY)
        self.base_url = base_url.rstrip("/")
        self._model = model
        self._counter = counter
        self._context_window = context_window
        self._api_key = Secret(api_key)
        self._timeouts = (connect_timeout, idle_timeout)
        self._sleep = sleep
        self._dialect = Dialect(reasoning=replay_reasoning)
        self._connections: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"EndpointClient({self.base_url!r}, {self._model!r})"

    @property
    def model(self) -> str:
        return self._model

    @property
    def counter(self) -> TokenCounter:
        return self._counter

    @property
    def context_window(self) -> int | None:
        return self._context_window

    @property
    def form(self) -> Form:
        """The form that the endpoint demands of a prompt's messages, as far as its refusals have
        taught; it is given to each request here. What it adds: `perdure.chat.forms.most_added`."""
        return self._dialect.form

    async def aclose(self) -> None:
        if self._connections is not None:
            await self._connections.aclose()

    async def listed(self) -> list[dict[str, Any]]:
        """The models that the endpoint lists (``GET /models``), as it describes them; empty where it
        doesn't say. Raises `AuthenticationRefused` and `EndpointUnreachable`."""
        import httpx2

        try:
            response = await self._open().get(
                f"{self.base_url}/models", timeout=min(LISTING, *self._timeouts)
            )
        except httpx2.ReadTimeout:
            return []
        except httpx2.HTTPError as error:
            raise EndpointUnreachable(self._reason(error), url=self.base_url) from error
        if response.status_code in {401, 403}:
            raise self._refused(response, response.text)
        try:
            return [dict(each) for each in response.json()["data"]]
        except (KeyError, TypeError, ValueError):
            return []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        tries, cuts = 0, 0
        why: EndpointError
        while True:
            tries += 1
            shown = False
            try:
                async with aclosing(self._attempt(request)) as pieces:
                    async for piece in pieces:
                        shown = True
                        yield piece
                return
            except _LearntError:
                tries -= 1
                continue
            except StreamCut as error:
                cuts += 1
                if cuts > 1:
                    raise
                why, wait = error, _pause(error, 1)
            except EndpointError as error:
                if not request.patient or tries >= _tries(error):
                    raise
                why, wait = error, _pause(error, tries)
            yield Retrying(str(why.facts["detail"]), wait, restart=shown)
            await self._sleep(wait)

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        """One request and its answer. Raises `_LearntError` where the same again, put otherwise, may do."""
        import httpx2

        body = body_of(request, self._model, self._dialect)
        headers = {"X-Perdure-Purpose": request.purpose, "X-Perdure-Session": quote(request.session)}
        url, content = f"{self.base_url}/chat/completions", _encoded(body)
        assembly = Assembly()
        try:
            async with self._open().stream("POST", url, content=content, headers=headers) as response:
                if response.status_code != 200:
                    self._learn_or_raise(self._refused(response, await _text(response, ERROR_BODY)), body)
                async for chunk in self._chunks(response):
                    if (wrong := error_in(chunk)) is not None:
                        refused = self._refused_midway(wrong, assembly)
                        if assembly.anything:
                            raise refused
                        self._learn_or_raise(refused, body)
                    for text in assembly.add(chunk):
                        yield text
        except httpx2.HTTPError as error:
            # Behind a finish reason nothing of the answer is missing, only a tidy end.
            if assembly.finish_reason is None:
                failure = StreamCut if assembly.anything else EndpointUnreachable
                raise failure(self._reason(error), url=self.base_url) from error
        for text in assembly.end():
            yield text
        if not assembly.anything and assembly.finish_reason is None:
            raise StreamCut("the stream ended with nothing in it", url=self.base_url)
        yield assembly.reply()

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
        """The chunks of a stream, or a whole completion as the only one. Ends only where the answer
        is complete: at ``[DONE]``, behind a finish reason, or at the usage that closes a stream."""
        events = await events_or_text(response)
        if isinstance(events, str):
            yield self._whole(events)
            return
        finished = usage_last = False
        async for event in events:
            if event.data.strip() == "[DONE]":
                # A response that was read to its end leaves a connection that the next request can use.
                with anyio.move_on_after(TIDY_END):
                    async for _ in events:
                        pass
                return
            if not event.data.strip():
                continue
            chunk = _object(event.data)
            if event.event == "error":
                chunk = chunk if chunk and error_in(chunk) else {"error": chunk or event.data}
            if chunk is None:
                # Most often the half of a chunk, where a connection was closed in its middle.
                raise StreamCut(f"not JSON: {self._shown(event.data)}", url=self.base_url)
            choices = chunk.get("choices") or ()
            finished = finished or any(
                isinstance(each, dict) and each.get("finish_reason") for each in choices
            )
            usage_last = not choices and bool(chunk.get("usage"))
            yield chunk
        if not finished and not usage_last:
            raise StreamCut("the stream ended before the answer did", url=self.base_url)

    def _whole(self, text: str) -> dict[str, Any]:
        """A completion that came in one piece. Raises `EndpointBroken` where the text is none."""
        completion = _object(text)
        if completion is None:
            what = "" if text.startswith("<") else "not JSON: "
            raise EndpointBroken(what + self._shown(text), url=self.base_url)
        if not completion.get("choices") and error_in(completion) is None:
            raise EndpointBroken(f"no completion: {self._shown(text)}", url=self.base_url)
        return completion

    def _learn_or_raise(self, refused: EndpointError, body: dict[str, Any]) -> NoReturn:
        """Raises `_LearntError` where the refusal teaches something, else the refusal. A template's
        error comes with any status (see `wire`), so only then the roles alone are asked about."""
        status, said = refused.facts["status"], str(refused.facts["detail"])
        if not isinstance(refused, ContextOverflow | AuthenticationRefused | RateLimited):
            learnt = learn(self._dialect, said, body, form_only=status not in {400, 422})
            if learnt:
                self._dialect = learnt
                raise _LearntError
        raise refused

    def _refused(self, response: httpx2.Response, text: str) -> EndpointError:
        about = {"url": self.base_url, "model": self._model, "secret": self._api_key}
        return refusal(response.status_code, response.headers, text, **about)

    def _refused_midway(self, error: Any, assembly: Assembly) -> EndpointError:
        about = {"url": self.base_url, "model": self._model, "secret": self._api_key}
        refused = refusal_in_stream(error, **about)
        if assembly.anything and _tries(refused) > 1:
            return StreamCut(str(refused.facts["detail"]), url=self.base_url)
        return refused

    def _shown(self, text: str) -> str:
        return masked(read_body(text).text, self._api_key)[:200]

    def _reason(self, error: httpx2.HTTPError) -> str:
        import httpx2

        connect, idle = self._timeouts
        if isinstance(error, httpx2.ConnectTimeout):
            return f"no connection within {connect:g} s"
        if isinstance(error, httpx2.TimeoutException):
            return f"silence for {idle:g} s"
        return masked(str(error), self._api_key) or type(error).__name__

    def _open(self) -> httpx2.AsyncClient:
        if self._connections is None:
            import httpx2

            connect, idle = self._timeouts
            headers = {"User-Agent": f"perdure/{__version__}", "Content-Type": "application/json"}
            if self._api_key:
                headers["Authorization"] = f"Bearer {self._api_key}"
            self._connections = httpx2.AsyncClient(
                headers=headers,
                timeout=httpx2.Timeout(idle, connect=connect),
                # A proxy named in the environment can't reach this machine's own loopback.
                trust_env=not is_loopback(self.base_url),
                # Certificates take time to load and aren't needed for plain HTTP.
                verify=self.base_url.startswith("https"),
            )
        return self._connections


class _LearntError(Exception):
    """The endpoint refused a field; the client now knows, and asks again without it."""


def window_of(described: Mapping[str, Any]) -> int | None:
    """The window in a model's description: vLLM, llama.cpp, LM Studio, OpenRouter and others."""
    places = (described, described.get("meta") or {}, described.get("top_provider") or {})
    names = ("max_model_len", "n_ctx", "loaded_context_length", "context_length", "context_window")
    found = (place.get(name) for name in (*names, "max_context_length") for place in places)
    return next((value for value in found if isinstance(value, int) and value > 0), None)


def _tries(error: EndpointError) -> int:
    """How often a request that failed so is sent in all."""
    if isinstance(error, EndpointUnreachable):
        return TRIES_TO_CONNECT
    if isinstance(error, RateLimited):
        return 1 if error.facts.get("spent") else TRIES
    return TRIES if error.facts.get("status") in PASSING else 1


def _pause(error: EndpointError, tries: int) -> float:
    """Seconds until the next try: as the endpoint asks, else exponential with full jitter (AWS
    Architecture Blog, "Exponential Backoff And Jitter"). Raises `RateLimited` where the endpoint
    asks for more than our patience."""
    asked = error.facts.get("retry_after")
    if isinstance(asked, int | float):
        if asked > PATIENCE:
            facts = {**error.facts, "detail": f"{error.facts['detail']}; it asks to wait {asked:.0f} s"}
            raise RateLimited(**facts) from error  # type: ignore[arg-type] # facts hold a detail that is text
        return float(asked)
    return random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**tries))  # noqa: S311 -- no secret


def _encoded(body: Mapping[str, Any]) -> bytes:
    """UTF-8. A lone surrogate isn't text, and servers refuse its escape too: it goes as U+FFFD."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


async def _text(response: httpx2.Response, most: int) -> str:
    """The first ``most`` bytes of the body as text."""
    read = bytearray()
    async for piece in response.aiter_bytes():
        read += piece
        if len(read) >= most:
            break
    return bytes(read[:most]).decode("utf-8", "replace")
