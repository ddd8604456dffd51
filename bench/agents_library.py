"""`perdure.Agent` kept open, for `agents.py`: a task as JSON on each line in, its end on each line out.

A process of its own, so that the endpoint, which runs in the bench's, takes no time from it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from perdure import Agent, PerdureError


async def main() -> None:
    settings = json.loads(sys.argv[1])
    async with Agent(**{**settings, "workspace": Path(settings["workspace"])}) as agent:
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            try:
                finished = await agent.run(json.loads(line), session="bench")
                said = "" if finished.status == "answered" else f"{finished.status}: {finished.reason}"
            except PerdureError as error:
                said = f"{type(error).__name__}: {error.say('en')}"
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    anyio.run(main)
