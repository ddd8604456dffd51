"""An embedder behind any OpenAI-compatible ``/v1/embeddings``.

Endpoints differ in how many texts and tokens they take at once, and say so in words that nobody can
list. So a refused request is halved: the texts, until the one that was refused stands alone, and then
that text. What a text is cut to depends on the text and the endpoint alone, not on what came before,
so that the same text always has the same vector.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perdure import __version__
from perdure.chat.secrets import masked as without_secrets
from perdure.config import NO_HTTP, NO_KEY, Secret, is_http, is_loopback
from perdure.errors import (
    AuthenticationRefused,
    ConfigError,
    ContextOverflow,
    EndpointBroken,
    EndpointError,
    EndpointUnreachable,
    ModelUnknown,
    RateLimited,
)
from perdure.models.embedder import embeddable, unit
from perdure.models.endpoint import _encoded, _object, _pause, _tries
from perdure.models.refusals import error_in, masked, read_body, refusal, refusal_in_stream

if TYPE_CHECKING:
    import httpx2
    from numpy import float32
    from numpy.typing import NDArray

#: Texts in a request: what the strictest widespread server takes unless told otherwise.
AT_ONCE = 32
#: Characters of a text that are sent, and those below which a refusal isn't about its length.
LONGEST, SHORTEST = 8_000, 64
#: Seconds that an answer to a question is waited for: without it, words alone are searched.
ASKING = 10.0

_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
#: What families of models want in front of a question and in front of a text, by their model cards.
PREFIXES = (
    (r"e5-(?:small|base|large)(?!.*instruct)", "query: ", "passage: "),
    (r"nomic-embed-text|modernbert-embed", "search_query: ", "search_document: "),
    (r"embedding-?gemma", "task: search result | query: ", "title: none | text: "),
    (r"snowflake-arctic-embed.*(?:2|v2)\.0|arctic-embed2", "query: ", ""),
    (
        r"mxbai-embed-large|snowflake-arctic-embed|bge-(?:small|base|large)-en",
        "Represent this sentence for searching relevant passages: ",
        "",
    ),
    (r"bge-(?:small|base|large)-zh", "为这个句子生成表示以用于检索相关文章：", ""),
    (r"e5-.*instruct", f"{_TASK} ", ""),
    (r"qwen3-embedding", _TASK, ""),
)

_LENGTH = re.compile(r"too (?:long|large|many|big)|tokens?\b|length|maximum|exceed|batch", re.IGNORECASE)
_ENCODING = re.compile(r"encoding_?format|base64", re.IGNORECASE)
#: Statuses that say that there is nothing at this address, or nothing of the kind.
_NOT_THERE = frozenset({404, 405, 501})


class EndpointEmbedder:
    """`Embedder` for the model ``model`` of the endpoint at ``base_url`` (usually ending in ``/v1``).

    A request that fails is repeated as the chat client's are, but a question only where the connection
    was lost: somebody waits for it. ``rest`` waits between two tries, until it was
    closed at the latest, and says whether it was. Once closed, it stays so.
    Secrets in a text are masked before it is sent.
    Raises `EndpointError`, and `ConfigError` at once for a URL or a key that can't be sent.
    """

    #: Texts leave the process: who hands them over in pieces masks what a border goes through.
    sends = True

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        asking_timeout: float = ASKING,
        rest: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        if not is_http(base_url):
            raise ConfigError(NO_HTTP, value=base_url)
        api_key = api_key.strip()
        if not (api_key.isascii() and api_key.isprintable()):
            raise ConfigError(NO_KEY)
        self._base_url = base_url.rstrip("/")
        self._place = _without_secrets(self._base_url)
        self._model = model
        self._api_key = Secret(api_key)
        self._timeouts = (connect_timeout, idle_timeout, min(asking_timeout, idle_timeout))
        self._closed = threading.Event()
        self._rest = rest
        self._opening = threading.Lock()
        self._connections: httpx2.Client | None = None
        self._query, self._passage = prefixes_of(model)
        self._compact = True
        self._dimensions = 0

    def __repr__(self) -> str:
        return f"EndpointEmbedder({self._place!r}, {self._model!r})"

    @property
    def name(self) -> str:
        """The model, the endpoint, which may serve something else under that name than another one
        does, and what is put in front of texts. The version is as far as the model's name tells it."""
        prefix = f" after {self._passage!r}" if self._passage else ""
        return f"{self._model} ({self._place}){prefix}"

    def embed(self, texts: Sequence[str], *, asking: bool = False) -> NDArray[float32]:
        import numpy

        prefix = self._query if asking else self._passage
        said = [prefix + embeddable(without_secrets(text), LONGEST) for text in texts]
        rows: list[NDArray[float32]] = []
        while len(rows) < len(said):
            rows += self._vectors(said[len(rows) : len(rows) + AT_ONCE], len(prefix), asking)
        return unit(numpy.stack(rows) if rows else numpy.zeros((0, self._dimensions)))

    def close(self) -> None:
        self._closed.set()
        with self._opening:
            if self._connections is not None:
                self._connections.close()

    def _vectors(self, texts: Sequence[str], prefix: int, asking: bool) -> list[NDArray[float32]]:
        """A vector a text. A request that is refused for its size is halved."""
        try:
            return self._patiently(texts, asking)
        except EndpointError as error:
            if not _too_large(error, len(texts)):
                raise
            refused = error
        if len(texts) == 1:
            length = (len(texts[0]) - prefix) // 2
            if length < SHORTEST:
                raise refused
            return self._vectors([embeddable(texts[0], prefix + length)], prefix, asking)
        half = (len(texts) + 1) // 2
        first = self._vectors(texts[:half], prefix, asking)
        return first + self._vectors(texts[half:], prefix, asking)

    def _patiently(self, texts: Sequence[str], asking: bool) -> list[NDArray[float32]]:
        tries = 0
        while True:
            tries += 1
            compact = self._compact
            try:
                return self._read(self._answer(texts, asking, compact), len(texts))
            except EndpointError as error:
                if compact and _says(error, _ENCODING):
                    self._compact, tries = False, tries - 1
                    continue
                if asking and (tries > 1 or not error.facts.get("lost")):
                    raise
                if tries >= _tries(error) or _too_large(error, len(texts)):
                    raise
                if not asking and self._rest(self._closed, _pause(error, tries)):
                    raise

    def _answer(self, texts: Sequence[str], asking: bool, compact: bool) -> dict[str, Any]:
        """What the endpoint answers to one request, where it is an answer. ``compact``: numbers are
        asked for in base64, a quarter of their size in JSON; endpoints that don't know it send them so."""
        import httpx2

        body: dict[str, Any] = {"model": self._model, "input": list(texts)}
        if compact:
            body["encoding_format"] = "base64"
        connect, idle, answer = self._timeouts
        silence = answer if asking else idle
        timeout = httpx2.Timeout(silence, connect=min(connect, silence))
        try:
            url = f"{self._base_url}/embeddings"
            response = self._open().post(url, content=_encoded(body), timeout=timeout)
        except httpx2.ConnectTimeout as error:
            why = f"no connection within {timeout.connect:g} s"
            raise EndpointUnreachable(why, url=self._place) from error
        except httpx2.TimeoutException as error:
            raise EndpointUnreachable(f"silence for {silence:g} s", url=self._place) from error
        except (httpx2.HTTPError, RuntimeError) as error:  # the second where it was closed meanwhile
            why = masked(str(error), self._api_key) or type(error).__name__
            raise EndpointUnreachable(why, url=self._place, lost=True) from error
        if response.status_code != 200:
            raise self._refused(response)
        found = _object(response.text)
        if found is None:
            raise self._broken(f"no JSON: {masked(read_body(response.text).text, self._api_key)[:200]}")
        if "data" not in found and (wrong := error_in(found)) is not None:
            about = {"url": self._place, "model": self._model, "secret": self._api_key}
            raise refusal_in_stream(wrong, **about)
        return found

    def _read(self, answer: dict[str, Any], count: int) -> list[NDArray[float32]]:
        """The vectors of an answer, in the order of the texts: answers may come in any."""
        data = answer.get("data")
        if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
            raise self._broken("no embeddings in the answer")
        if len(data) != count:
            raise self._broken(f"{len(data)} embeddings for {count} texts")
        places = [each.get("index", at) for at, each in enumerate(data)]
        if any(type(place) is not int for place in places) or sorted(places) != list(range(count)):
            raise self._broken(f"the embeddings are numbered {places[:40]}")
        found = [self._vector(each.get("embedding")) for each in data]
        return [found[at] for at in sorted(range(count), key=places.__getitem__)]

    def _vector(self, embedding: Any) -> NDArray[float32]:
        import numpy

        try:
            if isinstance(embedding, str):
                vector = numpy.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
            else:
                vector = numpy.asarray(embedding, numpy.float64)
            vector = vector.astype(numpy.float64)
        except (binascii.Error, TypeError, ValueError) as error:
            raise self._broken("an embedding that holds something other than numbers") from error
        if vector.ndim != 1 or not vector.size or not numpy.isfinite(vector).all():
            raise self._broken("an embedding that is no list of finite numbers")
        if self._dimensions not in {0, vector.size}:
            raise self._broken(f"an embedding of {vector.size} numbers, after some of {self._dimensions}")
        self._dimensions = vector.size
        # In double precision: squares of large numbers have no room in single.
        scaled: NDArray[float32] = (vector / max(float(abs(vector).max()), 1e-300)).astype(numpy.float32)
        return scaled

    def _refused(self, response: httpx2.Response) -> EndpointError:
        about = {"url": self._place, "model": self._model, "secret": self._api_key}
        refused = refusal(response.status_code, response.headers, response.text[:65_536], **about)
        if response.status_code in _NOT_THERE and not isinstance(refused, ModelUnknown):
            said = masked(read_body(response.text).text, self._api_key)[:200]
            return self._broken(
                f"it serves no embeddings (HTTP {response.status_code} for POST /embeddings"
                f"{': ' if said else ''}{said})"
            )
        return refused

    def _broken(self, detail: str) -> EndpointBroken:
        return EndpointBroken(detail, url=self._place, model=self._model)

    def _open(self) -> httpx2.Client:
        import httpx2

        with self._opening:
            if self._closed.is_set():
                raise EndpointUnreachable("the embedder was closed", url=self._place)
            if self._connections is None:
                headers = {
                    "User-Agent": f"perdure/{__version__}",
                    "Content-Type": "application/json",
                    "X-Perdure-Purpose": "embed",
                }
                if self._api_key:
                    headers["Authorization"] = f"Bearer {self._api_key}"
                self._connections = httpx2.Client(
                    headers=headers,
                    # A proxy named in the environment can't reach this machine's own loopback.
                    trust_env=not is_loopback(self._base_url),
                    # Certificates take time to load and aren't needed for plain HTTP.
                    verify=self._base_url.startswith("https"),
                )
            return self._connections


def prefixes_of(model: str) -> tuple[str, str]:
    """What stands in front of a question and of a text for this model."""
    name = model.lower()
    return next(((query, text) for family, query, text in PREFIXES if re.search(family, name)), ("", ""))


def _too_large(error: EndpointError, texts: int) -> bool:
    """The refusal may be about how much was sent: what is less may be taken."""
    if isinstance(error, AuthenticationRefused | RateLimited | ModelUnknown):
        return False
    if isinstance(error, ContextOverflow) or error.facts.get("status") == 413:
        return True
    if error.facts.get("status") in {400, 422}:
        return texts > 1 or _says(error, _LENGTH)
    # llama.cpp has a status of a broken server for it.
    return error.facts.get("status") == 500 and "too large to process" in str(error.facts["detail"])


def _says(error: EndpointError, what: re.Pattern[str]) -> bool:
    return error.facts.get("status") in {400, 413, 422} and bool(what.search(str(error.facts["detail"])))


def _without_secrets(url: str) -> str:
    """The URL without a user's name, a password, or a query, which may hold a key."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
