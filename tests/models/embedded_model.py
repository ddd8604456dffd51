"""The real embedded model, started once for all tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import anyio

from perdure.models.client import ModelRequest, Reply, complete
from perdure.models.embedded import MODEL, WINDOW, EmbeddedServer, as_small_talk
from perdure.models.embedder import SentenceEncoder
from perdure.models.endpoint import EndpointClient
from perdure.models.small import SmallModelClient


@cache
def server() -> EmbeddedServer:
    return EmbeddedServer()


@cache
def encoder() -> SentenceEncoder:
    return SentenceEncoder()


def client() -> SmallModelClient:
    running = server()
    inner = EndpointClient(
        running.base_url, MODEL, counter=running.counter, api_key=running.api_key, context_window=WINDOW
    )
    return SmallModelClient(inner, encoder(), talk=as_small_talk)


def ask(request: ModelRequest, make: Callable[[], SmallModelClient] = client) -> Reply:
    async def asked() -> Reply:
        made = make()
        try:
            return await complete(made, request)
        finally:
            await made.aclose()

    return anyio.run(asked)
