"""Servers that do what none should; the way is the first argument."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

WAY = sys.argv[1]
SCHEMA = {"type": "object", "properties": {}}


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def initialized(asked: dict[str, Any]) -> dict[str, Any]:
    version = asked["params"].get("protocolVersion", "2025-06-18")
    about = {"name": "scripted", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}


def listed() -> list[dict[str, Any]]:
    if WAY == "huge-schema":
        parameters = {f"p{n}": {"type": "string", "description": "x" * 300} for n in range(500)}
        return [{"name": "huge", "inputSchema": {"type": "object", "properties": parameters}}, tool("small")]
    if WAY == "bomb":
        definitions = {
            f"d{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "abcdefgh"}}
            for n in range(5)
        }
        properties = {"x": {"$ref": "#/$defs/d0"}}
        schema = {"type": "object", "properties": properties, "$defs": definitions}
        return [{"name": "bomb", "inputSchema": schema}, tool("small")]
    if WAY == "many":
        return [
            tool(f"t{n}", "A tool that is described at some length, as they are. " * 4) for n in range(100)
        ]
    if WAY == "malformed":
        return [{"name": "none", "inputSchema": {"type": "object", "properties": 3}}, tool("small")]
    return [tool("echo")]


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": SCHEMA}


def answer(asked: dict[str, Any]) -> None:
    number, method = asked.get("id"), asked.get("method")
    if number is None:
        return
    if WAY == "wrong-id":
        say({"id": 4711, "result": initialized(asked)})
    elif method == "initialize":
        if WAY == "no-result":
            say({"id": number, "result": {"protocolVersion": 7}})
        else:
            say({"id": number, "result": initialized(asked)})
    elif method == "tools/list":
        if WAY == "no-list":
            say({"id": number, "error": {"code": -32000, "message": "no tools\x1b[2J today"}})
        elif WAY == "list-rubbish":
            say({"id": number, "result": {"tools": [{"name": 3}]}})
        elif WAY == "endless-pages":
            say({"id": number, "result": {"tools": [tool(f"t{time.monotonic_ns()}")], "nextCursor": "more"}})
        else:
            say({"id": number, "result": {"tools": listed()}})
    elif method == "tools/call":
        called(number)
    else:
        say({"id": number, "error": {"code": -32601, "message": f"no method {method}"}})


def called(number: Any) -> None:
    if WAY == "call-rubbish":
        print("this is no message", flush=True)
        say({"id": number, "result": {"content": [{"type": "text", "text": "still here"}]}})
    elif WAY == "call-wrong-form":
        say({"id": number, "result": {"content": "a text"}})
    elif WAY == "call-stalls":
        time.sleep(60)
    elif WAY == "call-floods":
        sys.stdout.write('{"x": "')
        while True:
            sys.stdout.write("x" * 1_000_000)
            sys.stdout.flush()
    elif WAY == "call-error":
        say({"id": number, "error": {"code": -32000, "message": "the quota is used up"}})
    elif WAY == "bad-text":
        sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %d, "result": "\xff\xfe"}\n' % number)
        sys.stdout.flush()
        say({"id": number, "result": {"content": [{"type": "text", "text": "after all"}]}})
    else:
        say({"id": number, "result": {"content": [{"type": "text", "text": "echo"}]}})


def main() -> None:
    print(f"way {WAY}", file=sys.stderr, flush=True)
    if WAY == "closes":
        sys.exit(4)
    if WAY == "stalls":
        time.sleep(60)
    if WAY == "deaf":
        os.close(0)
        time.sleep(60)
    while WAY == "rubbish":
        print("Welcome to the server!", flush=True)
    if WAY == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        answer(json.loads(line))
    while WAY == "stubborn":
        time.sleep(1)


main()
