"""The tool that looks after commands in the background: what they print, how they end, and stopping them.

One tool for all of it, since each schema takes its tokens of every prompt. It only reaches what `bash`
started, which was approved then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perdure.tools.contract import Said, Tool
from perdure.tools.jobs import LONGEST_WAIT, Job, Jobs
from perdure.tools.processes import PATIENCE
from perdure.tools.registry import tool
from perdure.tools.results import OUTPUT_LIMIT, facts_of, shown
from perdure.tools.shell import Memo

BACKGROUND = "background"


def background_tool(jobs: Jobs, memo: Memo, *, recalls: bool = False) -> Tool:
    """The tool `background`, for the session of a conversation."""

    @tool(name=BACKGROUND, effect="reads", timeout=LONGEST_WAIT + 2 * PATIENCE, output_limit=OUTPUT_LIMIT)
    async def background(id: str = "", action: Literal["read", "stop"] = "read", wait: float = 0) -> str:
        """Read what a command in the background printed since the last time, or stop it; no id: list all.

        Args:
            id: as bash named it
            action: read or stop
            wait: seconds to wait for more output, 60 at most
        """
        import anyio.to_thread

        if not id.strip():
            return _listed(jobs.jobs(memo.session))
        job = jobs.job(memo.session, id.strip())
        if action == "stop" and not job.ended:
            await anyio.to_thread.run_sync(job.stop)
        elif wait > 0:
            await job.waited(min(wait, LONGEST_WAIT), output=True)
        return looked_at(jobs, memo.session, job, recalls=recalls)

    return background


def looked_at(jobs: Jobs, session: str, job: Job, *, recalls: bool, notes: Sequence[str] = ()) -> Said:
    """What it printed since the last time, and how it stands. Of one that has ended nothing is kept after
    that. Raises `ToolError` where it never began."""
    # Asked first: what it prints at its end is there once it has ended.
    if job.ended:
        jobs.drop(session, job)
        facts = [f"{job.id} in the background", *facts_of(job.ran(), job.limit, sandboxed=job.wrapped)]
    else:
        facts = [f'{job.id} runs in the background for {job.seconds:.0f} s; background("{job.id}") reads on']
        facts += notes
    head, tail, total = job.taken()
    return shown(head, tail, total, f"[{'; '.join(facts)}]", recalls=recalls)


def _listed(jobs: Sequence[Job]) -> str:
    return "\n".join(map(_line, jobs)) or "(nothing runs in the background)"


def _line(job: Job) -> str:
    how = "ended" if job.ended else f"runs for {job.seconds:.0f} s"
    return f"{job.id}: {how}, {job.unread} bytes to read: {' '.join(job.command.split())[:80]}"
