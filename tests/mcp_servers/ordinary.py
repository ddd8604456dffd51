"""A server made with the protocol's own package: tools of all kinds, over stdio or over HTTP."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
    ToolListChangedNotification,
)

NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
PNG = "iVBORw0KGgo="


def tools() -> list[Tool]:
    found = [
        Tool(name="echo", description="Say it again.\x1b[2J\u202e", input_schema=WORD),
        Tool(name="look", input_schema=NOTHING, annotations=ToolAnnotations(read_only_hint=True)),
        Tool(name="picture", description="A picture.", input_schema=NOTHING),
        Tool(name="fail", description="Fails.", input_schema=NOTHING),
        Tool(name="raise", description="Raises.", input_schema=NOTHING),
        Tool(name="value", description="A value.", input_schema=NOTHING),
        Tool(name="sleep", description="Takes long.", input_schema=NOTHING),
        Tool(name="die", description="Ends the server.", input_schema=NOTHING),
        Tool(name="grow", description="One tool more.", input_schema=NOTHING),
        Tool(name="environment", description="The environment.", input_schema=NOTHING),
        Tool(name="much", description="Much text.", input_schema=NOTHING),
        Tool(name="files.read it", description="A name that models can't call.", input_schema=NOTHING),
    ]
    return found + [Tool(name="more", input_schema=NOTHING)] * Path("grown").exists()


async def list_tools(context: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=tools())


def said(text: str, **about: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], **about)


async def call_tool(context: Any, params: Any) -> CallToolResult:
    match params.name:
        case "echo":
            return said(params.arguments["word"])
        case "picture":
            link = ResourceLink(name="page", uri="https://example.org/", description="A page.")
            parts = [
                ImageContent(data=PNG, mime_type="image/png"),
                AudioContent(data=PNG, mime_type="audio/wav"),
            ]
            text = TextResourceContents(uri="note://1", text="a note")
            blob = BlobResourceContents(uri="note://2", blob=PNG)
            resources = [EmbeddedResource(resource=each) for each in (text, blob)]
            return CallToolResult(content=[TextContent(text="here"), *parts, *resources, link])
        case "fail":
            return said("no such city", is_error=True)
        case "raise":
            raise RuntimeError("broken inside")
        case "value":
            return CallToolResult(content=[], structured_content={"degrees": 21})
        case "sleep":
            import anyio

            try:
                await anyio.sleep(60)
            finally:
                Path("cancelled").write_text("yes")
        case "die":
            Path("died").write_text(str(time.time()))
            print("I am dying", file=sys.stderr, flush=True)
            os._exit(3)
        case "grow":
            Path("grown").write_text("")
            await context.session.send_notification(ToolListChangedNotification())
            return said("grown")
        case "environment":
            return said("\n".join(f"{name}={value}" for name, value in os.environ.items()))
        case "much":
            return said("x" * 2_000_000)
        case _:
            return said(f"{params.name} {os.getpid()}")
    return said("slept")


server: Server[Any] = Server("ordinary", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio() -> None:
    from mcp.server.stdio import stdio_server

    print("starting on stderr", file=sys.stderr, flush=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
    else:
        import anyio

        anyio.run(over_stdio)
