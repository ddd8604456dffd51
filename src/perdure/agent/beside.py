"""Run something beside a block, for as long as that lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio


@asynccontextmanager
async def beside(*tasks: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """``tasks`` are cancelled when the block ends, and must not raise. What the block raises comes out as it
    is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(task)
        try:
            yield
        except Exception as error:  # the group would wrap it in another
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
