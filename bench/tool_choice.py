"""Does the embedded model call the right tool with the right argument?

    python bench/tool_choice.py [TASKS.json ...]

Each file holds {"tasks": [{"request", "tool", "contains"}]}: the tool that should be called
("answer" = none) and a text its arguments must contain, spaces aside. Without a file, the held-out
tasks beside this script are run, which no example of a tool was written for. The real model runs;
the tools don't.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import anyio

from perdure.app import built_in_tools, open_model
from perdure.config import Settings
from perdure.models.client import ModelRequest, complete
from perdure.tools.registry import Registry, read_arguments

HELD_OUT = Path(__file__).parent / "tool_choice.json"


async def measure(name: str, tasks: list[dict[str, str]]) -> None:
    registry = Registry(built_in_tools(Settings()))
    client = await open_model(Settings())
    tool_right = both_right = invalid = 0
    began = time.perf_counter()
    for task in tasks:
        request = ModelRequest([{"role": "user", "content": task["request"]}], tools=registry.specs)
        reply = await complete(client, request)
        called = [call.name for call in reply.calls] or ["answer"]
        arguments = [read_arguments(call.arguments) for call in reply.calls]
        for call, given in zip(reply.calls, arguments, strict=True):
            tool = registry.get(call.name)
            required = set(tool.spec.parameters["required"]) if tool else {""}
            invalid += not required <= given.keys()
        written = "".join(str(value) for given in arguments for value in given.values()).replace(" ", "")
        chosen = called == [task["tool"]]
        right = chosen and task["contains"].replace(" ", "") in written
        tool_right += chosen
        both_right += right
        if not right:
            print(f"  {task['request']!r}: {', '.join(called)} {written!r}")
    await client.aclose()
    seconds = (time.perf_counter() - began) / len(tasks)
    of = len(tasks)
    print(f"{name}: tool right {tool_right}/{of}, tool and argument right {both_right}/{of}, ", end="")
    print(f"invalid calls {invalid}, {seconds:.2f} s a task")


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or [HELD_OUT]):
        anyio.run(measure, path.name, json.loads(path.read_text(encoding="utf-8"))["tasks"])
