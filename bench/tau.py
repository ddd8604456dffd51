"""Does the prompt still hold what the agent's next call needs?

    python bench/tau.py TRANSCRIPTS.json [WINDOW ...]

The transcripts are a list of {"traj": [messages]} with OpenAI-format tool calls, such as tau-bench's
`historical_trajectories` (sierra-research/tau-bench, MIT license). Each is replayed through `Memory`
without its system prompt, and in the same run through the plain sliding window of the same budget;
what is counted is said in `carried.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from carried import MEMORY, SLIDING, replay
from perdure.chat.tokens import counter_for
from plot import bars

WINDOWS = (1024, 2048, 4096)


def main() -> None:
    transcripts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    counter = counter_for("o200k_base")
    drawn: dict[str, dict[str, float]] = {}
    print("window  calls  sliding window  memory  prompts over budget")
    for window in [int(each) for each in sys.argv[2:]] or WINDOWS:
        calls = [call for each in transcripts for call in replay(each["traj"], window, counter)]
        slid, held = (sum(not call.lost[name] for call in calls) for name in (SLIDING, MEMORY))
        over = sum(call.over for call in calls)
        drawn[f"{window:,}"] = {SLIDING: 100 * slid / len(calls), MEMORY: 100 * held / len(calls)}
        print(f"{window:6} {len(calls):6} {slid / len(calls):15.1%} {held / len(calls):7.1%} {over:20}")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    title = "Calls whose every argument stands in the prompt, tau-bench airline"
    picture = bars(drawn, title=title, across="window, tokens", up="%", most=100)
    (results / "tau.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
