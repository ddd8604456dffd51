from __future__ import annotations

import asyncio
import enum
import functools
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from perdure.chat.calls import Example, ToolCall
from perdure.errors import ToolError
from perdure.tools.registry import Registry, read_arguments, tool, within

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


def schema_of(function: Any) -> dict[str, Any]:
    return dict(tool(function).spec.parameters)


def test_a_schema_comes_from_types_and_docstring() -> None:
    @tool(effect="reads", examples=[("Find x", {"query": "x"}), Example("Find y", {"query": "y"})])
    def search(query: str, limit: int = 10, exact: bool | None = None) -> str:
        """Find things.

        Looks everywhere.

        Args:
            query: what to look for
            limit: how many at most
        """
        return query

    assert search.spec.name == "search"
    assert search.spec.description == "Find things.\nLooks everywhere."
    assert search.effect == "reads"
    assert [example.request for example in search.spec.examples] == ["Find x", "Find y"]
    parameters = search.spec.parameters
    assert parameters["type"] == "object"
    assert parameters["required"] == ["query"]
    assert parameters["additionalProperties"] is False
    assert parameters["properties"]["query"] == {"type": "string", "description": "what to look for"}
    assert parameters["properties"]["limit"] == {
        "type": "integer",
        "default": 10,
        "description": "how many at most",
    }
    assert search(query="called as a function") == "called as a function"


def test_every_common_type_has_a_schema_without_titles_or_references() -> None:
    def everything(
        number: float,
        choice: Literal["a", "b"],
        colour: Colour,
        point: Point,
        points: list[Point],
        table: dict[str, int],
        path: Path,
        title: str,
        size: Annotated[int, Field(ge=1, description="how large")] = 1,
    ) -> str:
        """Everything."""
        return ""

    schema = schema_of(everything)
    text = str(schema)
    assert "$ref" not in text
    assert "$defs" not in text
    assert "'title': '" not in text
    properties = schema["properties"]
    assert properties["title"] == {"type": "string"}, "a parameter may be named title"
    assert properties["choice"]["enum"] == ["a", "b"]
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert properties["point"]["properties"]["x"] == {"type": "integer"}
    assert properties["points"]["items"]["type"] == "object"
    assert properties["size"]["minimum"] == 1


def test_a_type_without_end_keeps_its_reference() -> None:
    def plant(tree: Tree) -> str:
        """Plants."""
        return tree.name

    schema = schema_of(plant)
    assert "$defs" in schema
    assert schema["$defs"]["Tree"]["properties"]["name"] == {"type": "string"}


def test_a_tool_without_parameters_has_an_empty_object() -> None:
    def now() -> str:
        """Now."""
        return "now"

    assert schema_of(now) == {"type": "object", "properties": {}, "additionalProperties": False}


def untyped(x) -> str:  # type: ignore[no-untyped-def]
    return str(x)


def starred(*words: str) -> str:
    return " ".join(words)


@pytest.mark.parametrize(("function", "said"), [(untyped, "needs a type"), (starred, "by name")])
def test_a_function_that_no_model_could_call_is_refused_at_once(function: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        tool(function)


def test_names_are_checked_and_told_apart() -> None:
    def fine(x: str) -> str:
        return x

    with pytest.raises(ValueError, match="name must match"):
        tool(name="no spaces")(fine)
    with pytest.raises(ValueError, match="two tools are named 'fine'"):
        Registry([tool(fine), tool(fine)])
    assert Registry([tool(fine), tool(name="other")(fine)]).get("other") is not None


async def outcome(function: Any, arguments: str = "{}", **options: Any) -> tuple[bool, str]:
    made = tool(**options)(function)
    said = await Registry([made]).call(ToolCall("x", made.spec.name, arguments))
    assert said.seconds >= 0
    said.text.encode()
    return said.ok, said.text


async def test_sync_and_async_functions_run_with_checked_arguments() -> None:
    def double(n: int) -> str:
        return str(n * 2)

    async def triple(n: int, point: Point) -> str:
        return str(n * 3 + point.x)

    assert await outcome(double, '{"n": 4}') == (True, "8")
    assert await outcome(double, '{"n": "4"}') == (True, "8")
    assert await outcome(triple, '{"n": 4, "point": {"x": 1}}') == (True, "13")


async def test_whatever_a_tool_gives_becomes_text() -> None:
    def nothing() -> None:
        return None

    def table() -> dict[str, Any]:
        return {"天": [1, None]}

    assert await outcome(nothing) == (True, "(no output)")
    assert await outcome(table) == (True, '{"天": [1, null]}')
    assert await outcome(lambda: "a\ud800b", name="odd") == (True, "a\ufffdb")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no good"),
        SystemExit(3),
        RecursionError(),
        KeyError("k"),
        ExceptionGroup("several", [OSError("disk")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_nothing_that_a_tool_raises_ends_a_run(error: BaseException) -> None:
    def broken() -> str:
        raise error

    ok, text = await outcome(broken)
    assert not ok
    assert text.startswith("error: ")
    assert "Traceback" not in text
    assert "\n" not in text


async def test_a_tool_error_speaks_for_itself() -> None:
    def refuse() -> str:
        raise ToolError("error: try a shorter path")

    assert await outcome(refuse) == (False, "error: try a shorter path")


async def test_a_tool_that_takes_too_long_is_left_behind() -> None:
    async def slow() -> str:
        await anyio.sleep(30)
        return "late"

    def stuck() -> str:
        release.wait(30)
        ended.append("late")
        return "late"

    release, ended = threading.Event(), list[str]()
    assert await outcome(slow, timeout=0.1) == (False, "error: no result within 0.1 s")
    assert await outcome(stuck, timeout=0.1) == (False, "error: no result within 0.1 s")
    assert ended == [], "a hanging thread is not waited for"
    release.set()


async def test_cancelling_a_call_is_no_result() -> None:
    async def slow() -> str:
        await anyio.sleep(30)
        return "late"

    with anyio.move_on_after(0.05) as scope:
        await outcome(slow)
    assert scope.cancelled_caught


async def test_a_long_output_keeps_its_head_and_tail() -> None:
    ok, text = await outcome(lambda: "head" + "x" * 5000 + "tail", name="long", output_limit=300)
    assert ok
    assert text.startswith("head")
    assert text.endswith("tail")
    assert "characters left out" in text
    assert len(text) < 400


@given(st.text(max_size=300), st.integers(30, 200))
def test_what_is_within_the_limit_is_whole(text: str, limit: int) -> None:
    cut = within(text, limit)
    assert (cut == text) == (len(text) <= limit)


@given(st.text(max_size=60))
def test_no_text_of_arguments_makes_reading_fail(text: str) -> None:
    try:
        assert isinstance(read_arguments(text), dict)
    except ToolError as error:
        assert str(error).startswith("error: the arguments")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class OutsideTheTree(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyboardInterrupt(), "error: KeyboardInterrupt"),
        (GeneratorExit(), "error: GeneratorExit"),
        (OutsideTheTree("x"), "error: OutsideTheTree: x"),
        (BaseExceptionGroup("several", [KeyboardInterrupt()]), "error: KeyboardInterrupt"),
        (StopIteration(), "error: StopIteration"),
        (asyncio.CancelledError(), "error: CancelledError"),
        (Unspeakable(), "error: Unspeakable"),
        (ToolError(), "error: the call failed and the tool doesn't say why"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_a_thread_raises_is_never_an_interruption(error: BaseException, said: str) -> None:
    def broken() -> str:
        raise error

    assert await outcome(broken) == (False, said)


async def test_the_timeout_of_a_tool_itself_is_not_taken_for_ours() -> None:
    def connect() -> str:
        raise TimeoutError("timed out")

    async def connect_async() -> str:
        raise TimeoutError("timed out")

    for function in (connect, connect_async):
        assert await outcome(function) == (False, "error: TimeoutError: timed out")


async def test_a_long_error_is_cut_like_a_long_output() -> None:
    def broken() -> str:
        raise ToolError("x" * 5000)

    ok, text = await outcome(broken, output_limit=300)
    assert not ok
    assert "characters left out" in text
    assert len(text) < 400


async def test_hanging_tools_take_no_place_from_others() -> None:
    release = threading.Event()

    @tool(timeout=0.05)
    def stuck() -> str:
        release.wait(30)
        return "late"

    @tool(timeout=20.0)
    def quick() -> str:
        return "here"

    registry = Registry([stuck, quick])
    try:
        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(registry.call, ToolCall(str(number), "stuck", "{}"))
        assert (await registry.call(ToolCall("x", "quick", "{}"))).text == "here"
    finally:
        release.set()


def test_a_hanging_tool_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import anyio, threading
from perdure.chat.calls import ToolCall
from perdure.tools.registry import Registry, tool

@tool(timeout=0.05)
def stuck() -> str:
    threading.Event().wait()
    return ""

print(anyio.run(Registry([stuck]).call, ToolCall("x", "stuck", "{}")).text)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "error: no result within 0.05 s\n"), ended.stderr


async def test_context_reaches_a_sync_tool() -> None:
    of_the_run: ContextVar[str] = ContextVar("of_the_run")
    of_the_run.set("seen")

    def look() -> str:
        return of_the_run.get()

    assert await outcome(look) == (True, "seen")


async def test_an_async_function_in_a_plain_decorator_is_awaited() -> None:
    async def double(n: int) -> str:
        return str(n * 2)

    @functools.wraps(double)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return double(*args, **kwargs)

    assert await outcome(logged, '{"n": 4}') == (True, "8")


async def test_a_nul_is_shown_and_not_sent() -> None:
    assert await outcome(lambda: "a\x00b", name="odd") == (True, "a\u2400b")


@pytest.mark.parametrize("name", ["", "x" * 5000, "calc\ud800", "two words", "look\n"])
async def test_an_unknown_tool_is_told_the_known_ones_whatever_its_name(name: str) -> None:
    def look() -> str:
        return ""

    said = await Registry([tool(look)]).call(ToolCall("x", name, "{}"))
    assert not said.ok
    assert "The tools are: look." in said.text
    assert len(said.text) < 200
    said.text.encode()


async def test_without_tools_an_unknown_one_is_told_so() -> None:
    assert "The tools are: none." in (await Registry().call(ToolCall("x", "look", "{}"))).text


def test_an_example_with_arguments_that_are_not_there_is_refused() -> None:
    def look(at: str) -> str:
        return at

    with pytest.raises(ValueError, match="look: an example names arguments it has not: to"):
        tool(examples=[("Look here", {"to": "here"})])(look)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1', "not valid JSON"),
        ('{"a": 1}{"a": 2}', "not valid JSON: Extra data near"),
        ("{'a': 1}", "not valid JSON"),
        ('"{}"', "must be an object"),
        ("true", "must be an object"),
    ],
    ids=lambda text: text[:20],
)
def test_arguments_that_are_no_object_say_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ToolError, match=said) as raised:
        read_arguments(text)
    assert str(raised.value).startswith("error: the arguments")
    assert len(str(raised.value)) < 300
