"""Tool calls for models that have none: the embedded one, a person's GGUF, a small Ollama model.

To the loop this is a model like any other. What a small model can't do is done for it: the tool is
chosen by the nearest example, the end of the work is decided (a result of this turn is answered,
not followed by a further call), and literals that it garbled are put back. What it does itself is
write the arguments, after examples and under the tool's JSON schema, and speak. A short result
always stands in the answer: where the model's own sentence lacks it or is about something else,
the result itself is the answer. A long result is the answer as it is; such a model would only
retell it wrongly.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import anyio.to_thread

from perdure.chat.calls import ToolCall, ToolSpec
from perdure.chat.forms import Form
from perdure.chat.language import Language, language_of, say
from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TokenCounter, Usage
from perdure.errors import Words
from perdure.models.choosing import Chooser, Wish
from perdure.models.client import ModelClient, ModelRequest, Piece, Reply, Text, complete
from perdure.models.embedder import Embedder
from perdure.models.fitting import fits
from perdure.models.grounding import grounded, occurs

#: Examples shown before the request; more made neither choice nor copying better, only slower.
SHOTS = 4
#: Tokens an argument may take, and characters of a result that a small model may retell.
ARGUMENT_TOKENS, SHORT_RESULT = 160, 200
#: Characters of a request that the examples are followed by; a longer one is shown by its ends.
REQUEST_SHOWN = 2_000
#: Tokens of context taken for a model whose window nobody knows.
SMALL_WINDOW = 2_048

FILL: Words = (
    "Write the arguments of {tool} for the request, as JSON. Copy names and numbers exactly.",
    "为请求写出 {tool} 的参数，用 JSON。名称和数字要照抄。",
)
RETELL: Words = (
    "The answer is already known. Say it in one short sentence, with the value exactly as it stands.",
    "答案已知。用一句简短的话说出来，数值照抄。",
)
#: How a known answer is said, to be imitated: request, result, sentence.
RETOLD: Sequence[tuple[Words, Words, Words]] = (
    (
        ("What is 19+6? Use the calculator.", "19+6 是多少？请用计算器。"),
        ("25", "25"),
        ("19+6 is 25.", "19+6 等于 25。"),
    ),
    (
        ("Which version of node is installed?", "装的是哪个版本的 node？"),
        ("v18.2.0", "v18.2.0"),
        ("The installed version of node is v18.2.0.", "装的 node 版本是 v18.2.0。"),
    ),
)
KNOWN: Words = ("{request}\nThe answer is: {result}", "{request}\n答案是：{result}")

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
#: A sentence in lines, or one that says the same thing again.
_RAMBLES = re.compile(r"\n|(\S{4,}).*\1")
#: Words that only say which tool to use; the tool is chosen when arguments are written.
_MENTION = re.compile(
    r"(?:\b(?:please\s+)?(?:use|using|with|via|in|through)\s+(?:the\s+|a\s+)?"
    r"(?:shell|bash|terminal|command\s+line|calculator)\b(?:\s+to\b)?"
    r"|请?(?:用|使用|通过)\s*(?:shell|bash|命令行|终端|计算器)来?)[\s.。,，:：]*",
    re.IGNORECASE,
)


class SmallModelClient:
    """`ModelClient` around ``inner``. ``talk`` changes a request that wants no tool into what this
    model answers best; ``on_close`` runs when it is closed. ``small`` tells the policy that no rule
    for capable models is meant for this one."""

    small = True

    def __init__(
        self,
        inner: ModelClient,
        embedder: Embedder,
        *,
        talk: Callable[[ModelRequest], ModelRequest] = lambda request: request,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.inner = inner
        self._talk = talk
        self._on_close = on_close
        self._chooser = Chooser(embedder)

    @property
    def model(self) -> str:
        return self.inner.model

    @property
    def counter(self) -> TokenCounter:
        return _SmallCounter(self.inner.counter)

    @property
    def context_window(self) -> int | None:
        return self.inner.context_window

    @property
    def form(self) -> Form:
        return self.inner.form

    async def aclose(self) -> None:
        await self.inner.aclose()
        if self._on_close:
            self._on_close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        async with aclosing(self._pieces(request)) as pieces:
            async for piece in pieces:
                yield replace(piece, of_whole_prompt=False) if isinstance(piece, Reply) else piece

    async def _pieces(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        plain = replace(request, messages=as_plain_chat(request.messages), tools=())
        if request.purpose != "think" or not request.tools or request.schema is not None:
            async for piece in self.inner.stream(plain):
                yield piece
            return
        asked, results = this_turn(request.messages)
        if results:
            reply = await self._answer(request, asked, results)
            yield Text(reply.content)
            yield reply
            return
        shown = self._shown(asked)
        wishes = await anyio.to_thread.run_sync(self._chooser.wishes, shown, request.tools)
        filled = [await self._granted(request, wish) for wish in wishes]
        if calls := tuple(call for call, _ in filled if call):
            usage = sum((usage for _, usage in filled), Usage())
            yield Reply("", calls, finish_reason="tool_calls", usage=usage, model=self.model)
            return
        async for piece in self.inner.stream(self._talk(plain)):
            yield piece

    def _shown(self, asked: str) -> str:
        """The request, or its ends: as much as fits a quarter of the window beside the examples."""
        characters = REQUEST_SHOWN
        room = (self.context_window or SMALL_WINDOW) // 4
        while self.inner.counter.text(_ends(asked, characters)) > room and characters > 8:
            characters //= 2
        return _ends(asked, characters)

    async def _granted(self, request: ModelRequest, wish: Wish) -> tuple[ToolCall | None, Usage]:
        """The call that a wish comes to, or where its arguments aren't in the request, the second
        nearest tool's."""
        call, usage = await self._filled(request, wish)
        if call is None:
            others = [tool for tool in request.tools if tool.name != wish.tool.name]
            instead = await anyio.to_thread.run_sync(self._chooser.wish, wish.request, others)
            if instead:
                call, more = await self._filled(request, instead)
                usage += more
        return call, usage

    async def _filled(self, request: ModelRequest, wish: Wish) -> tuple[ToolCall | None, Usage]:
        """The call that a wish comes to; None where the model writes no valid arguments."""
        names = _needed(wish.tool)
        if not names:
            return _call(wish.tool, {}), Usage()
        usage = Usage()
        for shots in (SHOTS, 1):
            ask = replace(
                request,
                messages=_few_shot(wish, names, shots),
                tools=(),
                schema=_narrowed(wish.tool, names),
                max_output_tokens=ARGUMENT_TOKENS,
                temperature=0.0,
            )
            reply = await complete(self.inner, ask)
            usage += reply.usage
            arguments = None if reply.cut else _read(reply.content, names)
            if arguments is None or not fits(arguments, _narrowed(wish.tool, names)):
                continue
            copied = [name for name in names if _always_copied(wish.tool, name)]
            endings = {name: _endings(wish, name) for name in names}
            arguments = grounded(arguments, wish.request, copied, endings)
            # An argument that is always copied and isn't there is one of the examples'.
            if all(occurs(arguments[name], wish.request) for name in copied) and not _strange_numbers(
                arguments, wish.request
            ):
                return _call(wish.tool, arguments), usage
        return None, usage

    async def _answer(self, request: ModelRequest, asked: str, results: Sequence[_Result]) -> Reply:
        lang = language_of(asked)
        if len(results) > 1 or not results[0].short:
            told = "\n\n".join(
                f"{result.tool}:\n{result.text}" if len(results) > 1 else result.text for result in results
            )
            return Reply(told, finish_reason="stop", model=self.model)
        result = results[0].text
        ask = replace(
            request,
            messages=_retelling(self._shown(asked), result, lang),
            tools=(),
            max_output_tokens=120,
            temperature=0.0,
        )
        reply = await complete(self.inner, ask)
        sentence = reply.content.strip()
        plain = _stands_in(sentence, result) and not reply.cut and not _RAMBLES.search(sentence)
        good = plain and _only_numbers_of(sentence, f"{asked} {result}")
        return replace(reply, content=sentence if good else result, finish_reason="stop")


@dataclass(frozen=True, slots=True)
class _Result:
    tool: str
    text: str

    @property
    def short(self) -> bool:
        """One line that a sentence can hold; an error speaks for itself."""
        plain = "\n" not in self.text and len(self.text) <= SHORT_RESULT
        return plain and not self.text.startswith(("error", "not run", "没有运行", "("))


@dataclass(frozen=True, slots=True)
class _SmallCounter:
    """The inner counter; tools count as what is shown of them: the examples of one at a time."""

    inner: TokenCounter

    @property
    def name(self) -> str:
        return self.inner.name

    def text(self, text: str) -> int:
        return self.inner.text(text)

    def message(self, message: Message) -> int:
        return self.inner.message(message)

    def tools(self, tools: Sequence[ToolSpec]) -> int:
        """No prompt holds both the conversation and the examples, so the tools add nothing to it
        but the answer's own instruction."""
        return sum(map(self.inner.message, _retelling("", "", "en"))) if tools else 0


def this_turn(messages: Sequence[Message]) -> tuple[str, list[_Result]]:
    """The person's newest request, and what tools showed since."""
    at = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    asked = text_of(messages[at]) if at >= 0 else ""
    names = {
        call["id"]: call["function"]["name"]
        for message in messages[at + 1 :]
        for call in message.get("tool_calls") or ()
    }
    results = [
        _Result(names.get(message["tool_call_id"], "tool"), text_of(message).strip("\n"))
        for message in messages[at + 1 :]
        if message["role"] == "tool"
    ]
    return asked, results


def as_plain_chat(messages: Sequence[Message]) -> list[Message]:
    """The conversation for a template that knows no tools: calls and results become text, and
    neighbours of one role become one message."""
    plain: list[Message] = []
    for message in messages:
        role, text = message["role"], text_of(message)
        for call in message.get("tool_calls") or ():
            text += f"\n{call['function']['name']} {call['function']['arguments']}"
        if role == "tool":
            role = "user"
        if plain and plain[-1]["role"] == role:
            plain[-1] = _message(role, f"{plain[-1]['content']}\n\n{text.strip()}")
        elif text.strip():
            plain.append(_message(role, text.strip()))
    return plain


def _few_shot(wish: Wish, names: Sequence[str], shots: int) -> list[Message]:
    lang = language_of(wish.request)
    about = wish.tool.description.partition("\n")[0]
    messages = [_message("system", f"{about} {say(FILL, lang, tool=wish.tool.name)}")]
    for example in wish.examples[-shots:]:
        arguments = {name: example.arguments[name] for name in names if name in example.arguments}
        messages.append(_message("user", example.request))
        messages.append(_message("assistant", json.dumps(arguments, ensure_ascii=False)))
    messages.append(_message("user", _MENTION.sub(" ", wish.request).strip() or wish.request))
    return messages


def _retelling(asked: str, result: str, lang: Language) -> list[Message]:
    messages = [_message("system", say(RETELL, lang))]
    for request, value, sentence in RETOLD:
        known = say(KNOWN, lang, request=say(request, lang), result=say(value, lang))
        messages += [_message("user", known), _message("assistant", say(sentence, lang))]
    return [*messages, _message("user", say(KNOWN, lang, request=asked, result=result))]


def _needed(tool: ToolSpec) -> list[str]:
    """The arguments that are asked of a small model: the required ones."""
    return list(tool.parameters.get("required") or ())


def _narrowed(tool: ToolSpec, names: Sequence[str]) -> dict[str, Any]:
    properties = {name: tool.parameters["properties"][name] for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": list(names),
        "additionalProperties": False,
        **({"$defs": tool.parameters["$defs"]} if "$defs" in tool.parameters else {}),
    }


def _read(content: str, names: Sequence[str]) -> dict[str, Any] | None:
    """The arguments in a reply; None where one is missing or blank, or it is no JSON object."""
    found = re.search(r"\{.*\}", content, re.DOTALL)
    try:
        arguments = json.loads(found.group()) if found else None
    except ValueError:
        return None
    if not isinstance(arguments, dict) or any(str(arguments.get(name, "")).strip() == "" for name in names):
        return None
    return {name: arguments[name] for name in names}


def _always_copied(tool: ToolSpec, name: str) -> bool:
    shown = [(example.request, str(example.arguments.get(name, ""))) for example in tool.examples]
    return bool(shown) and all(value and value in request for request, value in shown)


def _endings(wish: Wish, name: str) -> list[str]:
    """The rest of a request that begins as an example does whose argument is its end: what stands
    after "Run the command"."""
    begun = {
        example.request.removesuffix(value)
        for example in wish.tool.examples
        if (value := str(example.arguments.get(name, ""))) and example.request.endswith(value)
    }
    return [wish.request[len(each) :] for each in begun if each and wish.request.startswith(each)]


def _call(tool: ToolSpec, arguments: Mapping[str, Any]) -> ToolCall:
    return ToolCall(f"call_{secrets.token_hex(6)}", tool.name, json.dumps(arguments, ensure_ascii=False))


def _stands_in(sentence: str, result: str) -> bool:
    """The sentence has the result as a word of its own: 5 doesn't stand in "-5" or "1.5"."""
    before = r"(?<![\w.,/^*+-])" if re.match(r"\d", result) else ""
    after = r"(?![.,]?\d|[/^%])" if re.search(r"\d$", result) else ""
    return re.search(f"{before}{re.escape(result)}{after}", sentence, re.ASCII) is not None


def _only_numbers_of(sentence: str, known: str) -> bool:
    """The sentence brings in no number of its own."""
    return set(_NUMBER.findall(sentence)) <= set(_NUMBER.findall(known))


def _strange_numbers(arguments: Mapping[str, Any], request: str) -> bool:
    """A number that the request doesn't hold: one of the examples', not the person's. The few that
    words stand for ("squared", "percent") are nobody's; a request without digits, or with a percent
    sign, can't tell."""
    asked = set() if "%" in request else set(_NUMBER.findall(request))
    written = set(_NUMBER.findall(" ".join(map(str, arguments.values()))))
    return bool(asked) and bool(written - asked - {"0", "1", "2", "3", "10", "100"})


def _ends(request: str, characters: int) -> str:
    if len(request) <= characters:
        return request
    return f"{request[: characters // 2]} [...] {request[-characters // 2 :]}"


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
