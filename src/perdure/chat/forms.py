"""The shape of a prompt for endpoints with strict templates.

Chat templates in the manner of Mistral, Gemma and Llama 2 raise an error where the roles don't
alternate, where the first message isn't a user's, or where there is a system message at all; some
providers check the same. A session doesn't go by such rules: a person writes twice, a run is
interrupted behind a tool's results, the oldest blocks leave. So the history stays as it was, and
the prompt takes the form its endpoint wants on its way out.

How the templates check: Mistral's count only user messages and assistant messages without calls,
so that tools may come in between, and want these to alternate, a user's first. Older ones, and
Gemma's, know no tools and count every message. Perplexity counts a tool's result as a user's
message. What is made here passes each of them wherever the calls themselves are accepted.

Messages are taken one after the other, and only the last one is ever added to: while a prompt
grows, what has been formed before stays as it is (but for a last message that another is merged
into), so that prompt caches keep working.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.chat.language import language_of, say
from perdure.chat.messages import Message, text_of
from perdure.chat.tokens import TokenCounter
from perdure.errors import Words

#: The user's first message, where a prompt begins in the middle of a conversation.
OPENING: Words = ("(The conversation goes on.)", "（对话继续。）")
#: The assistant's answer to results that the user spoke behind before it could say anything.
FILLER: Words = ("I have these results.", "结果已收到。")
#: What stands between two texts that become one.
BETWEEN = "\n\n"


@dataclass(frozen=True, slots=True)
class Form:
    """What an endpoint demands of the messages; the defaults demand nothing.

    ``alternate``: user and assistant take turns, and the first is a user's. ``system``: there is
    such a role. ``user_first``: the first message after system is a user's.
    """

    alternate: bool = False
    system: bool = True
    user_first: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """Tokens that forming adds at most: ``once`` to a prompt, and ``behind_results`` for each user
    message that stands right behind a tool's result."""

    once: int = 0
    behind_results: int = 0


def formed(messages: Sequence[Message], form: Form) -> list[Message]:
    """The messages in this form; the input isn't changed, and the default form changes nothing.
    The history must be paired (see `repair`), and stays so: calls, ids and results aren't touched.

    What is added, and when:

    - ``user_first`` or ``alternate``: `OPENING`, once, where the first message after system is no
      user's.
    - ``alternate``: `FILLER`, where a user's message follows a tool's result. `BETWEEN`, where a
      message is merged into the one before it, of the same role (an assistant's text also into the
      calls behind it); with that, one message less. A system message in the middle becomes the
      user's.
    - not ``system``: `BETWEEN`, once, as the system message is merged into the first user's; or
      nothing, where the first message is no user's and it becomes a user's message of its own.
    """
    if form == Form():
        return list(messages)
    shaped: list[Message] = []
    leading = True  # only system messages so far
    for message in messages:
        if message["role"] == "system" and not (leading and form.system):
            _add_system(shaped, message, form, leading=leading)
            continue
        if message["role"] != "system":
            if leading:
                _open(shaped, message, form)
            elif form.alternate and message["role"] == "user" and shaped[-1]["role"] == "tool":
                shaped.append(_filler(message))
        merges = form.alternate or (leading and not form.system and message["role"] == "user")
        _add(shaped, message, merges=merges)
        leading = leading and message["role"] == "system"
    return shaped


def most_added(form: Form, counter: TokenCounter) -> Added:
    """The tokens that `formed` adds to a prompt at most, in the dearer language. Merging adds none:
    the blank line is less than the frame of the message that it saves."""
    opening, filler = (
        max(counter.message({"role": role, "content": text}) for text in words)
        for role, words in (("user", OPENING), ("assistant", FILLER))
    )
    return Added(
        once=opening if form.alternate or form.user_first else 0,
        behind_results=filler if form.alternate else 0,
    )


def _add_system(shaped: list[Message], message: Message, form: Form, *, leading: bool) -> None:
    """A system message where the form has no place for one: as the user's."""
    if not form.alternate and form.system:
        shaped.append(message)
    elif text_of(message).strip():
        as_user = {**message, "role": "user"}
        if form.alternate and shaped and shaped[-1]["role"] == "tool":
            shaped.append(_filler(message))
        _add(shaped, as_user, merges=form.alternate or leading)


def _open(shaped: list[Message], message: Message, form: Form) -> None:
    """Let a user speak first, where another message would; ``shaped`` holds what stands for system."""
    begins = message["role"] == "user" or (bool(shaped) and shaped[-1]["role"] == "user")
    if (form.alternate or form.user_first) and not begins:
        lang = language_of(text_of(message) or "".join(map(text_of, shaped)))
        shaped.append({"role": "user", "content": say(OPENING, lang)})


def _filler(before: Message) -> Message:
    return {"role": "assistant", "content": say(FILLER, language_of(text_of(before)))}


def _add(shaped: list[Message], message: Message, *, merges: bool) -> None:
    last = shaped[-1] if shaped else None
    same = last is not None and last["role"] == message["role"] != "tool" and not last.get("tool_calls")
    if last is not None and same and merges:
        shaped[-1] = _merged(last, message)
    else:
        shaped.append(message)


def _merged(earlier: Message, later: Message) -> Message:
    merged = {**earlier, **later, "content": _joined(earlier.get("content"), later.get("content"))}
    if earlier.get("name") != later.get("name"):
        merged.pop("name", None)
    return merged


def _joined(earlier: Any, later: Any) -> Any:
    """Two contents as one. Texts are joined by a blank line, also where they are the last and the
    first part of multi-part contents."""
    if _is_nothing(earlier) or _is_nothing(later):
        return earlier if _is_nothing(later) else later
    if isinstance(earlier, str) and isinstance(later, str):
        return f"{earlier}{BETWEEN}{later}"
    *parts, last = _parts(earlier)
    first, *more = _parts(later)
    if last.get("type") == first.get("type") == "text":
        return [*parts, {**last, **first, "text": f"{last['text']}{BETWEEN}{first['text']}"}, *more]
    return [*parts, last, first, *more]


def _is_nothing(content: Any) -> bool:
    return not (content.strip() if isinstance(content, str) else content)


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
