"""What a person needn't say again: a turn that a limit or an interruption ended."""

from __future__ import annotations

from perdure.agent.resuming import request_to_go_on
from perdure.chat.messages import Entry, Kind
from perdure.store.journal import Recorded

TIME = "2026-12-03T10:00:00.000+00:00"


def session(*told: str, lang: str = "en") -> list[Entry | Recorded]:
    """Records of a session: kinds of entries, and ends of turns as ``=status``."""
    records: list[Entry | Recorded] = [Recorded("session.created", 0, {"system": "", "lang": lang}, TIME)]
    for seq, each in enumerate(told, 1):
        if each.startswith("="):
            records.append(Recorded("turn.finished", seq, {"status": each[1:]}, TIME))
        elif each == "undone":
            records.append(Recorded("turn.undone", seq, {"first": 1, "last": seq}, TIME))
        else:
            records.append(Entry(seq, Kind(each), {"role": "user", "content": "x"}, 1, TIME))
    return records


def test_a_turn_that_a_limit_or_an_interruption_ended_can_go_on() -> None:
    for end in ("=limit", "=interrupted"):
        assert request_to_go_on(session("user", "tool_call", "tool_result", end))
        assert request_to_go_on(session("user", "assistant", end)), "a partial answer is no answer"


def test_a_turn_whose_process_ended_can_go_on() -> None:
    assert request_to_go_on(session("user"))
    assert request_to_go_on(session("user", "assistant", "=answered", "user", "tool_call"))


def test_an_answer_or_an_error_leaves_nothing_to_go_on_with() -> None:
    assert request_to_go_on(session()) is None
    assert request_to_go_on(session("user", "assistant")) is None
    assert request_to_go_on(session("user", "assistant", "=answered")) is None
    assert request_to_go_on(session("user", "=failed")) is None
    assert request_to_go_on(session("user", "=limit", "user", "assistant", "=answered")) is None


def test_a_turn_that_was_taken_back_does_not_count() -> None:
    assert request_to_go_on(session("user", "assistant", "=answered", "user", "=limit", "undone")) is None
    assert request_to_go_on(session("user", "=limit", "user", "assistant", "=answered", "undone"))


def test_it_is_said_in_the_sessions_language() -> None:
    assert request_to_go_on(session("user", "=limit")) == "Go on with the last request."
    assert request_to_go_on(session("user", "=limit", lang="zh")) == "请继续完成上一个请求。"
