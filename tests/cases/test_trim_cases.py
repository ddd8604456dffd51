"""Public reports on what leaves a window (kinds ``pairing``, ``anchor``, ``budget``, ``trim.pairs``):
calls parted from their results, a request that was trimmed away, limits looked at too seldom."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent.running import Bench
from memory.histories import assert_paired, assistant, user
from perdure import Memory, tool
from perdure.agent.states import Limits
from perdure.chat.calls import ToolSpec
from perdure.chat.forms import Form
from perdure.chat.messages import Message
from perdure.chat.tokens import counter_for
from perdure.errors import PromptOverflow
from perdure.models.endpoint import EndpointClient
from scenarios.perdure_command import Command
from scripted_endpoint import Answer, Request, Scripted, ScriptedEndpoint, user_first

COUNTER = counter_for("o200k_base")
#: Each window is tried in the deep run; in the ordinary one every so many.
STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 9


def calling(id: str, arguments: Any = None, name: str = "read_file") -> Message:
    function = {"name": name, "arguments": json.dumps(arguments or {"path": id})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def result(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": text}


def rounds(*ids: str, words: int = 60) -> list[Message]:
    """One call with its result after the other."""
    return [message for id in ids for message in (calling(id), result(id, f"body of {id} " * words))]


def tokens(prompt: list[Message]) -> int:
    return sum(map(COUNTER.message, prompt))


def remembering(messages: list[Message], window: int, **options: Any) -> Memory:
    memory = Memory(window, counter=COUNTER, **options)
    memory.extend(messages)
    return memory


def ids_in(prompt: list[Message]) -> set[str]:
    return {call["id"] for message in prompt for call in message.get("tool_calls") or ()}


def prompts_at_every_window(messages: list[Message], **options: Any) -> dict[int, list[Message]]:
    """The prompt at each window up to one that holds everything. Where a prompt can't fit, the error says so
    with both figures; there is one window from which on it fits."""
    prompts: dict[int, list[Message]] = {}
    whole = Memory(1_000_000, counter=COUNTER, **options)
    whole.extend(messages)
    for window in (*range(0, whole.tokens * 8 // 7, STEP), whole.tokens * 8 // 7 + 64):
        memory = remembering(messages, window, **options)
        try:
            prompt = memory.prompt()
        except PromptOverflow as overflow:
            assert not prompts, f"a window of {window} is too small, and a smaller one was not"
            assert overflow.needed > overflow.budget == memory.budget.tokens
            continue
        assert tokens(prompt) <= memory.budget.tokens
        assert_paired(prompt)
        prompts[window] = prompt
    assert prompts[window] == whole.prompt(), "nothing leaves where everything fits"
    return prompts


# --- pairing: a-trim-01, a-trim-07

TWO_ROUNDS = [
    user("read both files"),
    *rounds("a", words=300),
    *rounds("b"),
    assistant("Both are read. " * 4),
    user("which of them is longer?"),
]


def test_a_window_of_any_size_begins_at_the_border_of_a_block_and_holds_the_request() -> None:
    prompts = prompts_at_every_window(TWO_ROUNDS, low_water=1.0)
    kept = [ids_in(prompt) for prompt in prompts.values()]
    assert {"a", "b"} in kept
    assert {"b"} in kept, "the older call leaves first, with its result"
    assert set() in kept, "only the last messages"
    assert {"a"} not in kept
    for prompt in prompts.values():
        assert prompt[-1] == user("which of them is longer?")


def test_a_limit_between_a_call_and_its_result_moves_to_the_border_of_the_block() -> None:
    """Each window that has room for the call and for one token to all but one of its result."""
    call, shown = rounds("b")
    beside = [user("go"), *rounds("a"), call, shown, assistant("read"), user("and?")]
    for window, prompt in prompts_at_every_window(beside).items():
        assert (call in prompt) == any(message.get("tool_call_id") == "b" for message in prompt), window


# --- pairing: a-trim-02


@pytest.mark.parametrize("form", [Form(user_first=True), Form(alternate=True), Form(system=False)])
def test_where_a_template_demands_it_a_user_speaks_first_however_much_has_left(form: Form) -> None:
    history = [user("start"), *rounds("a", "b", "c"), assistant("read"), user("next"), *rounds("d", "e", "f")]
    for system in ("", "Be brief."):
        for window in range(400, 1600, 20):
            memory = remembering(history, window, form=form, system=system)
            try:
                prompt = memory.prompt()
            except PromptOverflow:
                assert window < 600
                continue
            first = next(message for message in prompt if message["role"] != "system")
            assert first["role"] == "user"
            assert tokens(prompt) <= memory.budget.tokens
            assert_paired(prompt)


@pytest.mark.parametrize("refuses", [[], [user_first]], ids=["any endpoint", "a user must be first"])
@pytest.mark.anyio
async def test_a_turn_of_nothing_but_tools_never_sends_a_bare_call_first(
    tmp_path: Path, refuses: list[Any]
) -> None:
    endpoint, bench = await turn_of_tools(tmp_path, window=2048, steps=30, words=60, refuses=refuses)
    assert bench.of("compaction"), "blocks have left"
    assert not endpoint.refusals
    for request in endpoint.requests:
        assert next(m["role"] for m in request.messages if m["role"] != "system") == "user"


# --- pairing: a-trim-03


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_three_turns_of_two_rounds_trimmed_to_a_share_answer_each_id_exactly_once(share: float) -> None:
    history: list[Message] = []
    for turn in range(3):
        history += [user(f"turn {turn}"), *rounds(f"t{turn}a", f"t{turn}b"), assistant(f"done {turn}")]
    memory = remembering([*history, user("and now?")], 4096, low_water=share)
    whole = memory.tokens
    memory = remembering([*history, user("and now?")], whole, low_water=share)
    trimmed = memory.compact()
    assert trimmed is not None
    prompt = memory.prompt()
    assert_paired(prompt)
    assert trimmed.window.tokens_after <= share * memory.limit
    calls = [call["id"] for message in prompt for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in prompt if message["role"] == "tool"]
    assert calls == answered
    assert len(set(calls)) == len(calls)


# --- budget: a-trim-04, a-trim-05


@tool(effect="reads")
def read_page(number: int, words: int) -> str:
    """Reads a page."""
    return f"page {number}: " + "words of the page " * (words // 4)


def count(body: dict[str, Any]) -> int:
    tools = [ToolSpec(**each["function"]) for each in body.get("tools") or ()]
    return tokens(body["messages"]) + COUNTER.tools(tools)


async def turn_of_tools(
    folder: Path, *, window: int, steps: int, words: int, refuses: Any = ()
) -> tuple[ScriptedEndpoint, Bench]:
    """One request and so many rounds of tools behind it, on an endpoint that refuses what is over its
    window."""

    def play(request: Request) -> Scripted:
        asked = len(endpoint.requests)
        if asked > steps:
            return Answer("All read.")
        return Answer(calls=[(f"c{asked}", "read_page", {"number": asked, "words": words})])

    bench = Bench(folder, [read_page], window=window)
    with ScriptedEndpoint(play, window=window, count=count, refuses=refuses) as endpoint:
        client = EndpointClient(endpoint.base_url, "gpt-4o", counter=COUNTER, context_window=window)
        finished = await bench.turn(client, "Read every page.", limits=Limits(steps=steps + 1))
        await client.aclose()
    assert finished.answer == "All read."
    assert len(endpoint.requests) == steps + 1
    return endpoint, bench


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("window", "steps", "words"),
    [(2048, 20, 300), (16_384, 60, 2000), (4096, 20, 2000)],
    ids=["twenty calls", "sixty rounds of 2k", "results of half the window"],
)
async def test_a_tool_loop_is_within_the_window_before_every_call_of_the_model(
    tmp_path: Path, window: int, steps: int, words: int
) -> None:
    endpoint, bench = await turn_of_tools(tmp_path, window=window, steps=steps, words=words)
    assert not endpoint.refusals
    assert max(count(request.body) for request in endpoint.requests) <= window
    compactions = bench.of("compaction")
    assert compactions
    kinds = [event.type for event in bench.events if event.type in {"compaction", "state"}]
    assert ("compaction", "compaction") not in pairwise(kinds), "one before a call of the model"
    for request in endpoint.requests:
        assert any("Read every page." in str(message["content"]) for message in request.messages)


def test_calls_with_no_request_at_all_are_held_within_the_window_too() -> None:
    memory = Memory(1500, counter=COUNTER)
    for number in range(20):
        for message in rounds(f"c{number}"):
            memory.append(message)
        prompt = memory.prompt()
        assert tokens(prompt) <= memory.budget.tokens
        assert_paired(prompt)
        assert f"c{number}" in ids_in(prompt)
    assert memory.record.left[0][0] == 1


# --- pairing: a-trim-06


def test_a_large_call_and_its_tiny_result_leave_together() -> None:
    call = calling("big", {"path": "out.txt", "text": "lorem ipsum " * 2000}, "write_file")
    assert COUNTER.message(call) > 4000
    history = [user("write it"), call, result("big", "k"), assistant("written"), user("next")]
    for window in (2048, 3000, 4096):
        memory = remembering(history, window)
        trimmed = memory.compact()
        assert trimmed is not None
        assert ids_in(memory.prompt()) == set()
        assert {2, 3} <= set(trimmed.window.left)
        assert tokens(memory.prompt()) <= memory.budget.tokens


# --- anchor: a-trim-08


def test_one_message_larger_than_the_window_is_shortened_once_with_a_pointer_and_said_so(
    tmp_path: Path,
) -> None:
    window = 4096
    task = "BEGINNING of the log. " + "a line of the log " * (window * 3 // 2 // 4) + "END of the log."
    assert COUNTER.text(task) >= 1.45 * window
    with ScriptedEndpoint([Answer("Read.")], count=count) as endpoint:
        command = Command(tmp_path, endpoint.base_url)
        options = ["--model", "gpt-4o", "--context-window", str(window), "--session", "s"]
        ran = command("run", *options, "-", stdin=task)
        again = command("run", *options, "--json", "and now?")
    assert (ran.code, ran.out, again.code) == (0, "Read.\n", 0)
    thought = [each for each in endpoint.requests if each.headers["x-perdure-purpose"] == "think"]
    assert len(thought) == 2
    assert all(count(request.body) <= window for request in endpoint.requests)
    assert sum(line.startswith("~ ") for line in ran.err.splitlines()) == 1
    assert "long entries were shortened" in ran.err
    assert len(again.of("compaction")) <= 1
    (sent,) = [m["content"] for m in endpoint.requests[0].messages if "BEGINNING" in m["content"]]
    assert sent.startswith("BEGINNING of the log.")
    assert sent.endswith("END of the log.")
    assert "entry 1 holds the whole" in sent


# --- anchor: a-trim-09


def test_the_request_stays_and_the_oldest_results_of_its_own_turn_give_way_first() -> None:
    request = user("Compare the six files and name the largest: " + "with care " * 20)
    history = [request, *rounds("r1", "r2", "r3", "r4", "r5", "r6", words=260)]
    memory = remembering(history, 6144)
    assert memory.tokens > memory.limit
    whole = {f"r{n}": history[2 * n] for n in range(1, 7)}
    prompt = memory.prompt()
    assert request in prompt
    assert tokens(prompt) <= memory.budget.tokens
    assert_paired(prompt)
    shown = {m["tool_call_id"]: m for m in prompt if m["role"] == "tool"}
    assert shown["r6"] == whole["r6"], "the newest result, which the model has not seen, is whole"
    untouched = [id for id in whole if shown.get(id) == whole[id]]
    assert untouched == [f"r{n}" for n in range(7 - len(untouched), 7)], "what is whole is the newest"
    assert len(untouched) < 6


# --- trim.pairs: b-trim-01

TEN_IDS = [f"w{n}" for n in range(10)]
TEN_CALLS: list[Message] = [
    {"role": "system", "content": "sys"},
    user("read the ten files"),
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [calling(id, {"path": f"f{n}"})["tool_calls"][0] for n, id in enumerate(TEN_IDS)],
    },
    *(result(id, f"body {n} " * 20) for n, id in enumerate(TEN_IDS)),
    assistant("read"),
    user("which is longest?"),
]


def test_ten_results_of_one_message_stay_or_leave_together_at_every_budget() -> None:
    prompts = prompts_at_every_window(TEN_CALLS)
    for window, prompt in prompts.items():
        assert prompt[0] == {"role": "system", "content": "sys"}
        assert prompt[-1] == user("which is longest?")
        results = [message["tool_call_id"] for message in prompt if message["role"] == "tool"]
        assert results in ([], TEN_IDS), window
    assert min(prompts) < 300, "the request alone needs little"


# --- trim.pairs: b-trim-03


def test_a_history_that_fits_comes_back_equal_with_the_result_at_its_end() -> None:
    history: list[Message] = [
        {"role": "system", "content": "s"},
        user("time?"),
        calling("v1", {"command": "date"}, "bash"),
        result("v1", "Tue"),
    ]
    for window in (400, 8192):
        memory = Memory(window, counter=COUNTER)
        assert memory.extend(history) == []
        assert memory.compact() is None
        assert memory.prompt() == history
