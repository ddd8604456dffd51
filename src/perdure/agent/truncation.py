"""Notice that an endpoint cut the prompt without saying so.

Some servers (Ollama with its default window is the best known) answer 200 and have read only the
end of a prompt that was longer than their window: the system prompt and the rules are gone, and the
model answers all the same. What gives them away is the `usage` they report.
"""

from __future__ import annotations

#: Reported below this share of our count is suspicious; within a quarter, counts merely differ.
SUSPICIOUS = 0.6
#: Below this share nothing but a cut explains it, even where our count is an estimate.
CERTAIN = 0.4
#: Tokens that must be missing: with less, a template's words may be the reason.
MISSING = 1_024
#: A cut prompt is as long as the window, give or take a few tokens: a multiple of this.
WINDOW_STEP, NEAR = 1_024, 16


def cut_to(counted: int, reported: int, *, exact: bool) -> int | None:
    """The window that the endpoint seems to have, in tokens, or None where it read the whole prompt.

    ``counted``: our count of the prompt that was sent; ``reported``: the endpoint's `prompt_tokens`,
    0 where it doesn't say. An estimate may be twice the true count on some scripts, so there a figure
    that looks like a window is asked for, or a very small one.
    """
    if not reported or counted - reported < MISSING or reported >= counted * SUSPICIOUS:
        return None
    like_a_window = min(reported % WINDOW_STEP, -reported % WINDOW_STEP) <= NEAR
    return reported if exact or like_a_window or reported < counted * CERTAIN else None
