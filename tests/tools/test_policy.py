from __future__ import annotations

import pytest

from perdure.chat.calls import ToolCall
from perdure.tools.contract import Effect
from perdure.tools.policy import Policy
from perdure.tools.registry import tool


@pytest.mark.parametrize(
    ("effect", "policy", "verdict"),
    [
        ("reads", Policy(), "allow"),
        ("acts", Policy(), "deny"),
        ("acts", Policy(interactive=True), "ask"),
        ("acts", Policy(approve_all=True), "allow"),
        ("acts", Policy(approve_all=True, interactive=True), "allow"),
        ("reads", Policy(interactive=True), "allow"),
    ],
)
def test_looking_is_allowed_and_acting_asks(effect: Effect, policy: Policy, verdict: str) -> None:
    def act(what: str) -> str:
        return what

    decision = policy.decide(tool(effect=effect)(act), ToolCall("x", "act", "{}"))
    assert decision.verdict == verdict
    assert ("--yes" in decision.why) == (verdict == "deny")


def test_a_tool_acts_unless_it_says_that_it_only_reads() -> None:
    def unknown(x: str) -> str:
        return x

    assert tool(unknown).effect == "acts"
