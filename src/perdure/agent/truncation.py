"""Notice that an endpoint cut the prompt without saying so.

Some servers (Ollama with its default window is the best known) answer 200 and have read only the
end of a prompt that was longer than their window: the system prompt and the rules are gone, and the
model answers all the same. What gives them away is the `usage` they report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from perdure.chat.encodings import tokens_in
from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TokenCounter

#: Reported below this share of the least that the text can have, nothing but a cut explains it.
SUSPICIOUS = 0.6
#: Tokens that must be missing: with less, a template's words may be the reason.
MISSING = 1_024
#: Large vocabularies of different make. An estimate is up to six times the true count (Georgian, Tamil);
#: of the better of these two, no tokenizer that we have needs less than four fifths for any language.
FRUGAL = ("o200k_base", "gemma3")


def is_exact(counter: TokenCounter) -> bool:
    """It counts with the model's own tokenizer, and doesn't estimate."""
    return "estimate" not in counter.name


def cut_to(
    messages: Sequence[Message], reported: int, counter: TokenCounter, *, counted: int | None = None
) -> int | None:
    """The tokens that the endpoint has read of a prompt which it cut, or None where it read the whole.

    ``reported``: its `prompt_tokens`, 0 where it doesn't say; ``counted``: our count, where it is known.
    Only texts are weighed: what an image costs, nobody knows, and a template may leave out the rest.
    """
    if counted is not None and not _clearly_less(reported, counted):
        return None
    texts = [text for message in messages for text in _texts(message)]
    ways: list[Callable[[str], int]] = [partial(tokens_in, encoding=each) for each in FRUGAL]
    if is_exact(counter):
        ways = [counter.text]
    return reported if all(_clearly_less(reported, sum(map(count, texts))) for count in ways) else None


def _clearly_less(reported: int, counted: int) -> bool:
    return 0 < reported < counted * SUSPICIOUS and counted - reported >= MISSING


def _texts(message: Message) -> Iterator[str]:
    yield text_of(message)
    for call in message.get("tool_calls") or ():
        yield from (call["function"]["name"], call["function"]["arguments"])
