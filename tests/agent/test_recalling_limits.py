"""Recall at the edge of the budget, against an endpoint that takes no token more, and in several threads."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Agent
from perdure.agent.conversation import Conversation
from perdure.agent.recalling import AUTOMATIC_SHARE, Recaller, Recollection
from perdure.chat.events import Event
from perdure.chat.tokens import counter_for
from perdure.memory.budget import Budget
from perdure.models.endpoint import EndpointClient
from perdure.models.scripted import ScriptedModel
from perdure.store.archive import Scope
from perdure.store.sqlite import SqliteJournal
from perdure.store.sqlite_archive import SqliteArchive
from perdure.tools.recall import recall_tool
from scripted_endpoint import Answer, ScriptedEndpoint

pytestmark = pytest.mark.anyio

WINDOW = 3_000
ASKED = "Tell me: where does our mascot, the wombat, live?"
COUNTER = counter_for("o200k_base")
BUDGET = Budget.of(WINDOW)


def taken(body: dict[str, Any]) -> int:
    """What a request takes of the budget."""
    tools = COUNTER.tools([RECALL.spec]) if body.get("tools") else 0
    return sum(map(COUNTER.message, body["messages"])) + tools


class Nothing:
    """A recollection that is only named in a schema."""


RECALL = recall_tool(Nothing(), 400)  # type: ignore[arg-type]


class Strict:
    """A session with an endpoint that refuses any prompt above the budget."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.db"
        self.events: list[Event] = []

    async def turn(self, *tasks: str) -> ScriptedEndpoint:
        self.events = []
        with ScriptedEndpoint(lambda _: Answer("Done."), window=BUDGET.tokens, count=taken) as endpoint:
            client = EndpointClient(endpoint.base_url, "gpt-4o", counter=COUNTER, context_window=WINDOW)
            settings = {"store": str(self.path), "context_window": WINDOW, "embedder": "none"}
            async with Agent(client=client, summary="code", **settings) as agent:
                for task in tasks:
                    finished = await agent.run(task, session="s", on_event=self.events.append)
                    assert finished.status == "answered"
            await client.aclose()
        return endpoint

    def of(self, type: str) -> list[Any]:
        return [event for event in self.events if event.type == type]

    def conversation(self, journal: SqliteJournal) -> Conversation:
        return Conversation(journal, "s", COUNTER, BUDGET, (RECALL.spec,), model="gpt-4o", looking=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session stands that all tests begin with, once the first of them has made it."""
    return tmp_path_factory.mktemp("prepared") / "first"


@pytest.fixture
async def strict(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Strict:
    """The session in a copy of the test's own."""
    monkeypatch.setenv("PERDURE_TOOLS", "recall")
    if not prepared.exists():
        making = tmp_path / "making"
        making.mkdir()
        await make_session(Strict(making))
        making.rename(prepared)
    shutil.copytree(prepared, tmp_path / "first")
    return Strict(tmp_path / "first")


async def make_session(strict: Strict) -> None:
    facts = [
        f"The wombat Gregory, our mascot, lives in Delft at number {at}, in a red house." for at in range(9)
    ]
    work = [f"Now look at chapter {number} of the manual. " + "blah " * 90 for number in range(24)]
    await strict.turn(*facts, *work)


def filled(tokens: int) -> str:
    """The request with so many tokens."""
    text = ASKED
    while COUNTER.text(text) < tokens:
        text += " word"
    assert COUNTER.text(text) == max(tokens, COUNTER.text(ASKED))
    return text


@pytest.mark.parametrize("over", [-40, -2, -1, 0, 1, 2, 40])
@pytest.mark.parametrize("beside", ["request", "request and excerpt", "request and room"])
async def test_at_the_edge_of_the_budget_an_excerpt_never_takes_a_token_too_many(
    strict: Strict, tmp_path: Path, beside: str, over: int
) -> None:
    journal = SqliteJournal(strict.path)
    conversation = strict.conversation(journal)
    left = conversation.memory.limit - conversation.tokens
    message = COUNTER.message({"role": "user", "content": ASKED}) - COUNTER.text(ASKED)
    limit = int(BUDGET.tokens * AUTOMATIC_SHARE)
    archive = SqliteArchive(strict.path)
    scope = Scope("s", hidden=conversation.memory.shown)
    usual = Recaller(archive, None).excerpt(
        ASKED, scope, limit=limit, count=COUNTER.text, lang="en", readable=True
    )
    assert usual is not None
    archive.close()
    journal.close()
    ahead = {"request": 0, "request and excerpt": usual.tokens + message, "request and room": limit}[beside]
    copied = Strict(tmp_path / "copy")
    shutil.copytree(strict.path.parent, tmp_path / "copy")
    endpoint = await copied.turn(filled(left - ahead - message + over))
    assert endpoint.refusals == []
    assert all(event.tokens <= limit for event in copied.of("recall"))
    assert all(taken(request.body) <= BUDGET.tokens for request in endpoint.requests)
    assert copied.of("error") == []
    if beside == "request":
        assert bool(copied.of("compaction")) is (over > 0 or bool(copied.of("recall")))


async def test_a_request_that_leaves_no_room_comes_alone(strict: Strict) -> None:
    journal = SqliteJournal(strict.path)
    conversation = strict.conversation(journal)
    system = COUNTER.message(conversation.prompt()[0]) + COUNTER.tools([RECALL.spec])
    journal.close()
    endpoint = await strict.turn(filled(BUDGET.tokens - system - 60))
    assert endpoint.refusals == []
    assert all(taken(request.body) <= BUDGET.tokens for request in endpoint.requests)
    assert all(event.tokens <= BUDGET.tokens * AUTOMATIC_SHARE for event in strict.of("recall"))


async def test_an_excerpt_has_at_most_its_limit_whatever_that_is(strict: Strict) -> None:
    archive = SqliteArchive(strict.path)
    recaller = Recaller(archive, None)
    placed = 0
    for about in (True, False):
        for limit in (0, 1, *range(20, 400, 7)):
            found = recaller.excerpt(
                ASKED, Scope("s"), limit=limit, count=COUNTER.text, lang="en", about=about, readable=True
            )
            if found is not None:
                placed += 1
                assert found.tokens == COUNTER.text(found.text) <= limit
    assert placed > 50
    archive.close()


async def test_threads_share_a_recaller(strict: Strict) -> None:
    archive = SqliteArchive(strict.path)
    recaller = Recaller(archive, None)

    def found() -> str:
        excerpt = recaller.excerpt(ASKED, Scope("s"), limit=300, count=COUNTER.text, lang="en")
        return excerpt.text if excerpt else ""

    alone, together, began = found(), [""] * 8, threading.Barrier(9)

    def work(place: int) -> None:
        began.wait(20)
        together[place] = found()

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    began.wait(20)
    journal = SqliteJournal(strict.path)
    journal.create("beside", {"lang": "en"})
    journal.close()
    for thread in threads:
        thread.join(60)
    assert "Gregory" in alone
    assert together == [alone] * 8
    archive.close()


async def test_what_is_asked_for_at_once_comes_to_each_that_asks(strict: Strict) -> None:
    archive, journal = SqliteArchive(strict.path), SqliteJournal(strict.path)
    recollection = Recollection(Recaller(archive, None))
    recollection.begin(strict.conversation(journal))
    answers: dict[str, str] = {}

    async def ask(query: str) -> None:
        answers[query] = await recollection.find(query, None, None)

    queries = ["wombat mascot", "chapter 3 manual", "Delft", "red house", "xylophone"]
    async with anyio.create_task_group() as group:
        for query in queries:
            group.start_soon(ask, query)
    assert {query for query in queries if answers[query]} == {*queries} - {"xylophone"}
    for query in queries[:-1]:
        assert recollection.quoted(answers[query])
        assert answers[query] == await recollection.find(query, None, None)
    journal.close()
    archive.close()


async def test_nothing_of_a_conversation_stays_behind_a_run(tmp_path: Path) -> None:
    import gc

    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, Recollection | Conversation) for each in gc.get_objects())

    before = kept()
    settings = {"store": str(tmp_path / "s.db"), "embedder": "none"}
    async with Agent(client=ScriptedModel(["Hello."]), **settings) as agent:
        for _ in range(3):
            await agent.run("Hello.", session="s")
    del agent
    assert kept() == before
