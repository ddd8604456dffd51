"""What models cost by the settings, and what a run may spend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.config import Settings
from perdure.errors import ConfigError, Words

if TYPE_CHECKING:
    from perdure.agent.spending import Spending
    from perdure.chat.tokens import Usage

#: US dollars of a model's usage; None where its price isn't known.
Priced = Callable[[str, "Usage"], float | None]

NO_PRICE: Words = (
    "max_cost can't be kept, since the price of {model} is not known: put it into {path} as "
    '[prices."{model}"] with input = and output = in US dollars per million tokens (0 where it is free)',
    "无法遵守 max_cost，因为不知道 {model} 的价格：请在 {path} 中写明 "
    '[prices."{model}"]，以及 input = 和 output =，单位为每百万 token 的美元数（不收费则为 0）',
)


def price_of(settings: Settings, model: str, usage: Usage, *, own_machine: bool) -> float | None:
    """What a usage costs in US dollars: by the person's own prices, else by the table; None where neither
    knows. ``own_machine``: it is the embedded model, which costs nothing but electricity."""
    from perdure.models.catalog import cost_of

    cost = cost_of(model, usage, settings.base_url or "", settings.prices)
    return 0.0 if cost is None and own_machine else cost


def spending_of(settings: Settings, models: Iterable[str], price: Priced, own_file: Path) -> Spending:
    """What a run may spend that asks these models. Raises `ConfigError` where a limit of money is set and the
    price of one isn't known; ``own_file`` is where it can be given."""
    from perdure.agent.spending import Spending
    from perdure.chat.tokens import Usage

    if settings.max_cost is not None:
        for model in models:
            if price(model, Usage(1, 1)) is None:
                raise ConfigError(NO_PRICE, model=model, path=own_file)
    return Spending(settings.max_tokens, settings.max_cost)
