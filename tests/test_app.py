from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Agent, PerdureError, Settings, tool
from perdure.app import open_journal
from perdure.app.pricing import price_of
from perdure.chat.events import RunFinished
from perdure.chat.tokens import Usage
from perdure.config import ModelPrice
from perdure.errors import ConfigError
from perdure.models.client import ModelRequest
from perdure.models.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


@tool(effect="reads")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def act(what: str) -> str:
    """Acts."""
    return f"did {what}"


class SmallScripted(ScriptedModel):
    small = True


def agent(tmp_path: Path, model: ScriptedModel, **settings: Any) -> Agent:
    chosen = Settings(workspace=tmp_path, store=str(tmp_path / "s.db"), **settings)
    return Agent(chosen, tools=[weather, act], client=model)


async def test_a_program_runs_a_turn_with_its_own_tool(tmp_path: Path) -> None:
    model = ScriptedModel([[("weather", '{"city": "Lyon"}')], "It is sunny."])
    async with agent(tmp_path, model) as running:
        finished = await running.run("What is the weather in Lyon?")
    assert (finished.status, finished.answer) == ("answered", "It is sunny.")
    assert finished.seq > 5
    assert finished.time
    assert model.requests[1].messages[-1]["content"] == "sunny in Lyon"
    assert [spec.name for spec in model.requests[0].tools] == [
        "calculator",
        "read_file",
        "bash",
        "list_files",
        "search_files",
        "write_file",
        "edit_file",
        "recall",
        "update_plan",
        "weather",
        "act",
    ]


def test_a_program_without_an_event_loop_runs_one_too(tmp_path: Path) -> None:
    assert agent(tmp_path, ScriptedModel(["hello"])).run_sync("hi").answer == "hello"


def test_a_program_may_run_again_after_the_agent_was_closed(tmp_path: Path) -> None:
    twice = agent(tmp_path, ScriptedModel(["first", "second"]))
    assert [twice.run_sync("hi", session="s").answer for _ in range(2)] == ["first", "second"]


def test_a_setting_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no setting nonsense"):
        Agent(nonsense="a")


async def test_events_stream_and_leaving_the_block_interrupts_in_order(tmp_path: Path) -> None:
    async with agent(tmp_path, ScriptedModel(["hello"])) as running:
        async with running.stream("hi", session="s") as events:
            seen = [event async for event in events]
        assert isinstance(seen[-1], RunFinished)

        def for_ever(request: ModelRequest) -> list[tuple[str, str]]:
            return [("weather", f'{{"city": "{len(request.messages)}"}}')]

        running._models._main = ScriptedModel(for_ever)
        async with running.stream("again", session="s") as events:
            async for event in events:
                if event.type == "tool.finished":
                    break
        running._models._main = ScriptedModel(["fine"])
        assert (await running.run("go on", session="s")).answer == "fine"


async def test_what_prevents_a_turn_from_beginning_is_raised(tmp_path: Path) -> None:
    async with agent(tmp_path, ScriptedModel(["x"]), tools=("hammer",)) as running:
        with pytest.raises(ConfigError, match="no tool hammer"):
            await running.run("hi")
        with pytest.raises(PerdureError):
            async with running.stream("hi") as events:
                async for _ in events:
                    pass


@pytest.mark.parametrize(
    ("model", "settings", "done"),
    [
        (ScriptedModel, {}, False),
        (ScriptedModel, {"yes": True}, True),
        (SmallScripted, {"yes": True}, False),
        (SmallScripted, {"yes": True, "yes_small": True}, True),
    ],
)
async def test_a_general_yes_does_not_cover_a_small_model(
    tmp_path: Path, model: type[ScriptedModel], settings: dict[str, bool], done: bool
) -> None:
    playing = model([[("act", '{"what": "it"}')], "ok"])
    async with agent(tmp_path, playing, **settings) as running:
        await running.run("do it")
    assert (playing.requests[1].messages[-1]["content"] == "did it") is done


@pytest.mark.parametrize(("asked", "window"), [(None, 8192), (4096, 4096), (16_384, 8192)])
async def test_no_window_is_larger_than_the_models_own(
    tmp_path: Path, asked: int | None, window: int
) -> None:
    events: list[Any] = []
    async with agent(tmp_path, ScriptedModel(["ok"], context_window=8192), context_window=asked) as running:
        await running.run("hi", on_event=events.append)
    assert events[0].context_window == window


async def test_the_language_and_the_system_prompt_stay_those_of_the_first_request(tmp_path: Path) -> None:
    model = ScriptedModel(["好", "ok"])
    async with agent(tmp_path, model) as running:
        await running.run("你好，请帮我", session="s")
        await running.run("now in English", session="s")
    first, second = (request.messages[0] for request in model.requests)
    assert first == second
    assert "智能体" in first["content"]


async def test_two_turns_side_by_side_in_two_sessions_keep_apart(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: f"heard {request.messages[-1]['content']}")
    answers: dict[str, str] = {}

    async with agent(tmp_path, model) as running:

        async def one(name: str) -> None:
            answers[name] = (await running.run(name, session=name)).answer

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(one, name)
    assert answers == {name: f"heard {name}" for name in "abc"}


def test_a_store_is_named_by_its_path_or_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for store in (
        "plain.db",
        f"{tmp_path}/absolute.db",
        "sqlite:///relative.db",
        f"sqlite:///{tmp_path}/url.db",
    ):
        open_journal(store).close()
    found = {path.name for path in tmp_path.glob("*.db")}
    assert found == {"plain.db", "absolute.db", "relative.db", "url.db"}


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="sqlite"):
        open_journal("mysql://host/db")


async def test_what_is_raised_while_a_stream_is_read_comes_out_as_it_is(tmp_path: Path) -> None:
    async with agent(tmp_path, ScriptedModel(["hello"])) as running:
        with pytest.raises(ValueError, match="mine"):
            async with running.stream("hi") as events:
                async for _ in events:
                    raise ValueError("mine")


async def test_a_limit_of_money_needs_the_prices_of_all_who_are_asked(tmp_path: Path) -> None:
    free = {"scripted": ModelPrice(0, 0)}
    async with agent(tmp_path, ScriptedModel(["hello"]), max_cost=1.0) as running:
        with pytest.raises(ConfigError, match=r'prices\."scripted"'):
            await running.run("hi")
    for setting in ("judge_model", "summary_model"):
        named: dict[str, Any] = {setting: "dear", "prices": free}
        async with agent(tmp_path, ScriptedModel(["hello"]), max_cost=1.0, **named) as running:
            with pytest.raises(ConfigError, match=r'prices\."dear"'):
                await running.run("hi")
    async with agent(tmp_path, ScriptedModel(["hello"]), max_cost=1.0, prices=free) as running:
        assert (await running.run("hi")).cost == 0.0


def test_the_embedded_model_costs_nothing_and_a_server_on_this_machine_nobody_knows_what() -> None:
    used = Usage(1000, 10)
    assert price_of(Settings(), "smollm2-135m-instruct", used, own_machine=True) == 0.0
    server = Settings(base_url="http://localhost:8000/v1")
    assert price_of(server, "gpt-4o", used, own_machine=False) is None
    own = Settings(base_url="http://localhost:8000/v1", prices={"gpt-4o": ModelPrice(1000, 0)})
    assert price_of(own, "gpt-4o", used, own_machine=False) == 1.0
