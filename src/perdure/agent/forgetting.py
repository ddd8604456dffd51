"""What stands in the place of an entry whose words were removed for good."""

from __future__ import annotations

from perdure.chat.encodings import most_tokens
from perdure.chat.messages import Entry, Message
from perdure.chat.tokens import TextCounter

FORGOTTEN = "[forgotten]"


def blanked(entry: Entry) -> tuple[Message, int]:
    """The entry's message without its words, still paired with its calls or results; and a bound of its
    tokens in any vocabulary."""
    message: Message = {"role": entry.message["role"], "content": FORGOTTEN}
    if "tool_call_id" in entry.message:
        message["tool_call_id"] = entry.message["tool_call_id"]
    if calls := entry.message.get("tool_calls"):
        message["tool_calls"] = [
            {**call, "function": {"name": call["function"]["name"], "arguments": "{}"}} for call in calls
        ]
    return message, TextCounter("bytes", most_tokens).message(message)
