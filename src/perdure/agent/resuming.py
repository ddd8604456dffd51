"""Whether a session has something to go on with that nobody needs to say again.

A turn says in the journal how it ended. One of which nothing is said was ended with its process, or is of an
older perdure: it was answered where the last that stands in it is an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perdure.agent.prompts import GO_ON_WITH_REQUEST
from perdure.agent.undone import undone_entries
from perdure.chat.language import Language, say
from perdure.chat.messages import Entry, Kind, text_of
from perdure.store.journal import Recorded

if TYPE_CHECKING:
    from perdure.agent.conversation import Conversation

#: How turns end that can be gone on with as they are.
OPEN = frozenset({"limit", "interrupted"})


def request_to_go_on(records: Iterable[Entry | Recorded]) -> str | None:
    """What the person's request is where they only say that it should go on, in the session's language; None
    where the last turn that stands was ended by an answer or an error, or there is none, and no plan is left
    unfinished."""
    lang: Language = "en"
    ended: list[str] = []
    planned = False
    for record in (each for each in records if not each.lane):
        if isinstance(record, Entry):
            if record.kind is Kind.USER:
                ended.append("")
            if ended:
                ended[-1] = "answered" if record.kind is Kind.ASSISTANT else "interrupted"
        elif record.type == "session.created":
            lang = record.body.get("lang", lang)
        elif record.type == "turn.finished" and ended:
            ended[-1] = str(record.body.get("status"))
        elif record.type in {"plan", "plan.over"}:
            planned = record.type == "plan" and record.body["by"] != "model" and bool(record.body["steps"])
        elif record.type == "turn.undone" and ended:
            ended.pop()
    goes_on = bool(ended) and (planned or ended[-1] in OPEN)
    return say(GO_ON_WITH_REQUEST, lang) if goes_on else None


def only_goes_on(request: str) -> bool:
    """The request says nothing but that the last one is to go on: whoever wrote it so, it means that."""
    return request.strip() in GO_ON_WITH_REQUEST


def request_gone_on_with(conversation: Conversation, number: int) -> int:
    """The entry of the request that is worked on in the turn which entry ``number`` begins, by which it says
    only that the last one is to go on. It stays that entry where no other stands before it, or where a plan
    was made for the other one, whose steps have their names from it."""
    records = list(conversation.journal.records(conversation.session))
    undone = undone_entries(records)
    asked = [
        entry
        for entry in records
        if isinstance(entry, Entry)
        and entry.kind is Kind.USER
        and not entry.lane
        and entry.seq < number
        and entry.seq not in undone
        and not only_goes_on(text_of(entry.message))
    ]
    if not asked:
        return number
    request = asked[-1].seq
    plans = (each.body for each in records if isinstance(each, Recorded) and each.type == "plan")
    return number if any(plan.get("request") == request for plan in plans) else request
