"""A plan that the model keeps itself while it works: it writes it down, and it stays in view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from perdure.chat.calls import Example, ToolSpec
from perdure.chat.plans import Step, steps_of
from perdure.errors import ToolError
from perdure.tools.contract import Tool

UPDATE_PLAN = "update_plan"

SPEC = ToolSpec(
    UPDATE_PLAN,
    "Write down or change the plan for work that takes several steps, and mark each step when it begins and "
    "ends. Send all steps each time; the plan stays in view however long the work takes.",
    {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "what": {"type": "string"},
                        "status": {"enum": ["pending", "running", "done", "failed", "skipped"]},
                        "result": {"type": "string", "description": "in a sentence"},
                    },
                    "required": ["id", "what", "status"],
                },
            }
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
    (
        Example(
            "Plan the work first: find the failing test, mend the cause, run all tests",
            {"steps": [{"id": "1", "what": "find the failing test", "status": "running"}]},
        ),
    ),
)


class PlanKeeper(Protocol):
    """Who keeps the plan of a conversation. May raise `perdure.errors.StoreError`, and `ToolError` where
    another plan stands, which the model can't replace."""

    def keep(self, steps: Sequence[Step]) -> None:
        """The plan is now this one; without steps there is none any more."""
        ...


def update_plan_tool(keeper: PlanKeeper) -> Tool:
    """The tool `update_plan`."""

    def update_plan(steps: Any = None, **others: Any) -> str:
        # Models send the list under other names, and bare.
        told = {"steps": steps, **others} if steps is not None else others
        found = steps_of(told)
        if not found and steps != []:
            raise ToolError(
                "error: steps is a list such as "
                '[{"id": "1", "what": "find the failing test", "status": "running"}]'
            )
        keeper.keep(found)
        if not found:
            return "there is no plan any more"
        done = sum(step.status == "done" for step in found)
        return f"noted: {done} of {len(found)} steps done"

    return Tool(SPEC, update_plan, effect="reads")
