"""Mend a foreign or broken history so that every endpoint accepts it, and name what was mended.

Histories come from other programs, from files cut in the middle, from runs that were killed.
What a tool showed stays a tool's words: an orphan result gets a stand-in call rather than a
place among the person's messages, so that text from a tool can't turn into an instruction.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.chat.messages import Message, text_of

#: The result that stands in for one that never came.
INTERRUPTED = "interrupted, result unknown"


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was mended. ``at`` is the message's index in the list that came in, from 0."""

    at: int
    what: str


def repair(messages: Sequence[Message]) -> tuple[list[Message], list[Repair]]:
    """A valid history from any: every call answered at once, by exactly one result for each id.

    Results are put behind their call, in the call's order; one that never came becomes
    `INTERRUPTED`; an orphan result gets a stand-in call; repeated and missing ids are renamed;
    empty messages are dropped. A valid history comes back equal, with no repairs.
    """
    return _Mending(messages).run()


class _Mending:
    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.repairs: list[Repair] = []
        self.mended: list[Message] = []
        self.used_ids: set[str] = set()
        self.claimed: set[int] = set()
        self.results_of = self._results_by_call()

    def run(self) -> tuple[list[Message], list[Repair]]:
        for at, message in enumerate(self.messages):
            role = message.get("role")
            if role == "tool":
                if at not in self.claimed:
                    self._stand_in(at, message)
            elif role == "assistant" and message.get("tool_calls"):
                self._pair(at, message)
            elif role not in {"system", "developer", "user", "assistant"}:
                self._note(at, f"a message with the role {role!r} was left out")
            elif not _says_something(message):
                self._note(at, f"an empty {role} message was left out")
            elif "tool_calls" in message:
                self._note(at, "an empty list of calls was left out")
                self.mended.append({name: value for name, value in message.items() if name != "tool_calls"})
            else:
                self.mended.append(message)
        return self.mended, sorted(self.repairs, key=lambda repair: repair.at)

    def _results_by_call(self) -> dict[tuple[int, int], int]:
        """(message, call) to the index of the result that answers it. A result answers the oldest
        open call of its id before it; one without an id, the oldest open call of all."""
        found: dict[tuple[int, int], int] = {}
        open_calls: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
        newest: deque[tuple[int, int]] = deque()
        for at, message in enumerate(self.messages):
            if message.get("role") == "assistant" and message.get("tool_calls"):
                newest = deque()
                for nth, call in enumerate(message["tool_calls"]):
                    # A call that reuses an id ends the wait of earlier ones in other messages.
                    waiting = open_calls[str(call.get("id") or "")]
                    while waiting and waiting[0][0] != at:
                        waiting.popleft()
                    waiting.append((at, nth))
                    newest.append((at, nth))
            elif message.get("role") == "tool":
                id = message.get("tool_call_id")
                waiting = open_calls[id] if id else newest
                while waiting and waiting[0] in found:
                    waiting.popleft()
                if waiting:
                    found[waiting.popleft()] = at
                    self.claimed.add(at)
        return found

    def _pair(self, at: int, message: Message) -> None:
        calls, results = [], []
        expected = at + 1
        for nth, call in enumerate(message["tool_calls"]):
            whole = self._whole_call(at, call)
            calls.append(whole)
            where = self.results_of.get((at, nth))
            if where is None:
                self._note(at, f"the call {whole['id']} was never answered: '{INTERRUPTED}'")
                results.append({"role": "tool", "tool_call_id": whole["id"], "content": INTERRUPTED})
                continue
            if where != expected:
                self._note(where, f"the result of {whole['id']} was moved behind its call")
            expected = where + 1
            result = self.messages[where]
            if result.get("tool_call_id") != whole["id"] or result.get("content") is None:
                result = {**result, "tool_call_id": whole["id"], "content": result.get("content") or ""}
            results.append(result)
        same = all(new is old for new, old in zip(calls, message["tool_calls"], strict=True))
        self.mended.append(message if same else {**message, "tool_calls": calls})
        self.mended.extend(results)

    def _whole_call(self, at: int, call: Message) -> Message:
        """The call itself where it is whole, else a mended copy."""
        id = call.get("id")
        if not id or not isinstance(id, str):
            id = self._fresh("call")
            self._note(at, f"a call without an id is now {id}")
        elif id in self.used_ids:
            fresh = self._fresh(id)
            self._note(at, f"the call id {id} was used before; it is now {fresh}")
            id = fresh
        self.used_ids.add(id)
        function = call.get("function") or {}
        name, arguments = function.get("name") or "unknown", function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        if not _is_object(text):
            self._note(at, f"the arguments of {id} were not a JSON object: {text[:80]!r}")
            text = "{}"
        if (id, name, text, "function") == (
            call.get("id"),
            function.get("name"),
            arguments,
            call.get("type"),
        ):
            return call
        return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}

    def _stand_in(self, at: int, result: Message) -> None:
        id = result.get("tool_call_id") or ""
        if not id or id in self.used_ids:
            id = self._fresh(id or "call")
        self.used_ids.add(id)
        self._note(at, f"the result {id} had no call: a stand-in call was put before it")
        function = {"name": result.get("name") or "unknown", "arguments": "{}"}
        call = {"id": id, "type": "function", "function": function}
        self.mended.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self.mended.append({**result, "tool_call_id": id, "content": result.get("content") or ""})

    def _fresh(self, stem: str) -> str:
        every = self.used_ids | {str(message.get("tool_call_id")) for message in self.messages}
        number = 2
        while f"{stem}-{number}" in every:
            number += 1
        return f"{stem}-{number}"

    def _note(self, at: int, what: str) -> None:
        self.repairs.append(Repair(at, what))


def _says_something(message: Message) -> bool:
    content = message.get("content")
    return bool(text_of(message).strip()) or (isinstance(content, list) and len(content) > 0)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
