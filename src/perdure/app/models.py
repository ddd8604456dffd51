"""The models of an agent: the one it works with, and others of the same endpoint."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from perdure.app.opening import config_folder, open_model
from perdure.app.pricing import price_of, spending_of
from perdure.config import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.agent.spending import Spending
    from perdure.chat.tokens import Usage
    from perdure.models.client import ModelClient

#: Tokens of context taken for a model that neither the endpoint nor the table knows.
UNKNOWN_WINDOW = 8192


class Models:
    """Opened when they are first asked for; closed together. ``given`` replaces the one that the settings
    name."""

    def __init__(self, settings: Settings, given: ModelClient | None) -> None:
        self.settings = settings
        self._given = self._main = given
        #: Other models of the endpoint, by name.
        self._others: dict[str, ModelClient] = {}
        self._exit = AsyncExitStack()

    async def aclose(self) -> None:
        """Stop the embedded model and close connections; a later call opens them anew."""
        await self._exit.aclose()
        self._exit = AsyncExitStack()
        self._main, self._others = self._given, {}

    async def main(self) -> ModelClient:
        """The model, started or reached at the first call."""
        if self._main is None:
            self._main = await open_model(self.settings)
            self._exit.push_async_callback(self._main.aclose)
        return self._main

    async def other(self, name: str | None) -> ModelClient | None:
        """Another model of the endpoint, reached at the first call; None where none is named."""
        if not name:
            return None
        if name not in self._others:
            other = replace(self.settings, model=name, context_window=None, tool_calls="native")
            self._others[name] = await open_model(other)
            self._exit.push_async_callback(self._others[name].aclose)
        return self._others[name]

    def price(self, model: str, usage: Usage) -> float | None:
        """US dollars of a usage; None where the price is unknown."""
        own = self._given is None and self.settings.embedded
        return price_of(self.settings, model, usage, own_machine=own)

    def spending(self, models: Sequence[str]) -> Spending:
        """What a run with these models may spend. Raises `ConfigError` where a limit of money can't be
        kept."""
        return spending_of(self.settings, models, self.price, config_folder() / "perdure.toml")

    def window(self, client: ModelClient) -> int:
        """Tokens of a model's context, as far as they are known."""
        known = [each for each in (self.settings.context_window, client.context_window) if each]
        return min(known, default=UNKNOWN_WINDOW)

    def output_limit(self, client: ModelClient) -> int | None:
        """Tokens of one reply; None where the endpoint decides."""
        from perdure.models.embedded import OUTPUT

        return self.settings.max_output_tokens or (OUTPUT if self.settings.embedded else None)
