"""What does the prompt still know after twenty compactions, whatever the summariser does?

    python bench/drift.py [--seeds N] [--lost] [--embedded [--compactions N]]

Fifty facts (`drift_facts.py`) are stated by the person, the model and tools; then talk, or talk and work
whose results are full of other literals, goes on until twenty compactions have happened. After each: the
share of the exact literals (the person's, and others'), and of the facts in prose by their key phrase,
that the prompt holds. In
English and Chinese, at windows of 4,096 and 8,192 tokens, with code alone and with scripted summarisers,
one good and the others bad. The table goes to the terminal and to `bench/results/drift.md`.

`--embedded` asks the embedded model instead, about a minute for each compaction. `--lost` names the
facts that are gone at the end with code alone.
"""

from __future__ import annotations

import argparse
import functools
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from drift_facts import Fact, facts, stream
from perdure.chat.language import Language, say
from perdure.chat.messages import text_of
from perdure.chat.tokens import counter_for
from perdure.memory.gist import HEADINGS, SummaryRequest
from perdure.memory.memory import Memory
from plot import bars

COUNTER = counter_for("o200k_base")
WINDOWS, AFTER = (4096, 8192), (1, 5, 10, 20)
LANGUAGES: tuple[Language, Language] = ("en", "zh")
NOISE = {"talk": False, "talk and work": True}
#: What the person said to the letter, what model and tools did, and facts in prose.
GROUPS = ("person's literals", "other literals", "prose")
RESULTS = Path(__file__).parent / "results" / "drift.md"

Summarise = Callable[[SummaryRequest], str]


def group_of(fact: Fact) -> str:
    return GROUPS[2] if not fact.exact else GROUPS[0] if fact.by == "u" else GROUPS[1]


def shown(request: SummaryRequest) -> str:
    return "\n".join(map(text_of, request.messages))


def lines_within(request: SummaryRequest, lines: list[str]) -> str:
    """The lines, as many as fit the limit with the numbers that are put behind them."""
    kept, room = [], request.limit - 20
    for line in lines:
        room -= COUNTER.text(f"- {line} [100, 101]\n")
        if room < 0:
            break
        kept.append(f"- {line}")
    return "\n".join(kept)


class Scripted:
    """Summarisers that know the facts, or nothing. Each takes a request and gives the reply's text."""

    def __init__(self, planted: list[Fact]) -> None:
        self.by_speaker = sorted(planted, key=lambda fact: "uat".index(fact.by))
        self.before = ""

    def good(self, request: SummaryRequest) -> str:
        """Each fact that it is shown, in its own words, as far as the limit goes: the person's first."""
        said = shown(request)
        return lines_within(request, [f.text for f in self.by_speaker if f.key in said])

    def generalities(self, request: SummaryRequest) -> str:
        english = "They talked about several things, made good progress, and agreed to go on with the rest."
        chinese = "双方讨论了若干事项，进展顺利，并同意继续处理剩余的部分。"
        return say((english, chinese), request.lang)

    def no_literals(self, request: SummaryRequest) -> str:
        said = shown(request)
        gap = say(("a certain value", "某个值"), request.lang)
        told = [f.text.replace(f.key, gap) if f.exact else f.text for f in self.by_speaker if f.key in said]
        return lines_within(request, told)

    def wrong_digits(self, request: SummaryRequest) -> str:
        """Good, but for each digit, which is another one."""
        return re.sub(r"\d(?![^\[]*\])", lambda digit: str((int(digit[0]) + 1) % 10), self.good(request))

    def appends(self, request: SummaryRequest) -> str:
        """What it said before, and the newest lines that it is shown: longer each time."""
        newest = [line for line in shown(request).splitlines() if line.startswith("[")][-12:]
        self.before = "\n".join((self.before, *(f"- {line.partition('] ')[2]}" for line in newest))).strip()
        return self.before

    def skeleton(self, request: SummaryRequest) -> str:
        none = say(("none", "无"), request.lang)
        return "\n".join(f"{say(heading, request.lang)}:\n- {none}" for heading in HEADINGS.values())

    def refusal(self, request: SummaryRequest) -> str:
        return say(("I'm sorry, but I can't help with that.", "抱歉，我无法协助完成这个请求。"), request.lang)

    def empty(self, request: SummaryRequest) -> str:
        return ""

    def fails(self, request: SummaryRequest) -> str:
        raise TimeoutError

    def all(self) -> dict[str, Summarise | None]:
        return {
            "code alone": None,
            "good": self.good,
            "generalities": self.generalities,
            "drops literals": self.no_literals,
            "wrong digits": self.wrong_digits,
            "appends": self.appends,
            "skeleton": self.skeleton,
            "refusal": self.refusal,
            "empty": self.empty,
            "fails": self.fails,
        }


@dataclass
class Kept:
    """``held``: after how many compactions, of which group, how many facts of how many; requests to the
    summariser, and compactions after which nothing waits for a summary; facts gone at the end."""

    held: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    asked: int = 0
    taken: int = 0
    gone: list[Fact] = field(default_factory=list)

    def add(self, other: Kept) -> None:
        for key, (kept, of) in other.held.items():
            before = self.held.get(key, (0, 0))
            self.held[key] = (before[0] + kept, before[1] + of)
        self.asked, self.taken = self.asked + other.asked, self.taken + other.taken
        self.gone += other.gone


def compacted(memory: Memory, summarise: Summarise | None, kept: Kept) -> bool:
    """Make the next prompt fit, with a summary where there is a summariser; whether something left."""

    def counted(request: SummaryRequest) -> str:
        kept.asked += 1
        assert summarise is not None
        return summarise(request)

    if memory.compact(counted if summarise else None) is None:
        return False
    kept.taken += summarise is not None and not memory.record.pending
    return True


def lived(
    lang: Language, window: int, seed: int, *, work: bool, summarise: Summarise | None, compactions: int
) -> Kept:
    """One session through so many compactions."""
    planted, kept, done = facts(lang, seed), Kept(), 0
    memory = Memory(window, counter=COUNTER, lang=lang, summarised=summarise is not None)
    for messages in stream(lang, seed, work=work):
        for message in messages:
            if message["role"] == "assistant" and compacted(memory, summarise, kept):
                done += 1
                if done in AFTER or done == compactions:
                    prompt = "\n".join(map(text_of, memory.prompt()))
                    for group in GROUPS:
                        stand = [fact.key in prompt for fact in planted if group_of(fact) == group]
                        kept.held[done, group] = (sum(stand), len(stand))
                if done == compactions:
                    kept.gone = [fact for fact in planted if fact.key not in prompt]
                    return kept
            memory.append(message)
    raise AssertionError("the stream has no end")


def row(name: str, by_language: Mapping[Language, Kept], after: tuple[int, ...]) -> str:
    cells = [f"| {name}"]
    for kept in by_language.values():
        for group in GROUPS:
            shares = [kept.held[each, group] for each in after]
            cells.append(" ".join(f"{100 * held // of:3}" for held, of in shares))
        cells.append(f"{kept.taken}/{kept.asked}")
    return " | ".join(cells) + " |"


def tables(seeds: int) -> Iterator[str]:
    """The lines of the report."""
    names = tuple(Scripted([]).all())
    for window in WINDOWS:
        for noise, work in NOISE.items():
            yield f"\n## Window {window}, {noise}\n"
            yield from head(AFTER)
            drawn: dict[str, dict[str, float]] = {}
            for name in names:
                by_language: dict[Language, Kept] = {}
                for lang in LANGUAGES:
                    total = by_language.setdefault(lang, Kept())
                    for seed in range(seeds):
                        summarise = Scripted(facts(lang, seed)).all()[name]
                        total.add(
                            lived(lang, window, seed, work=work, summarise=summarise, compactions=AFTER[-1])
                        )
                for lang, kept in by_language.items():
                    for group in GROUPS[:2]:
                        held, of = kept.held[AFTER[-1], group]
                        drawn.setdefault(name, {})[f"{lang}, {group}"] = 100 * held / of
                yield row(name, by_language, AFTER)
            picture = bars(drawn, title=f"After 20 compactions: window {window}, {noise}", up="%", most=100)
            RESULTS.with_name(f"drift-{window}-{noise.replace(' ', '-')}.svg").write_text(picture, "utf-8")


def head(after: tuple[int, ...]) -> Iterator[str]:
    numbers = ", ".join(map(str, after))
    yield f"Per cent of the facts that the prompt holds after {numbers} compactions.\n"
    cells = [f"{lang}: {name}" for lang in LANGUAGES for name in (*GROUPS, "taken/asked")]
    yield f"| summariser | {' | '.join(cells)} |"
    yield "|---" * (len(cells) + 1) + "|"


@contextmanager
def embedded() -> Iterator[Summarise]:
    """The embedded model as a summariser."""
    import anyio

    from perdure.models.client import ModelRequest, complete
    from perdure.models.embedded import MODEL, WINDOW, EmbeddedServer
    from perdure.models.endpoint import EndpointClient

    server = EmbeddedServer()

    async def reply(request: SummaryRequest) -> str:
        client = EndpointClient(
            server.base_url, MODEL, counter=server.counter, api_key=server.api_key, context_window=WINDOW
        )
        try:
            asked = ModelRequest(
                request.messages,
                purpose="summarize",
                max_output_tokens=min(request.max_output_tokens, 2 * request.limit),
                temperature=0.0,
                extra={"repeat_penalty": 1.1},
            )
            return (await complete(client, asked)).content or ""
        finally:
            await client.aclose()

    try:
        yield lambda request: anyio.run(functools.partial(reply, request))
    finally:
        server.stop()


def with_embedded(compactions: int) -> Iterator[str]:
    after = (*(each for each in AFTER if each < compactions), compactions)
    yield "\n## Window 4096, talk and work, the embedded model\n"
    yield from head(after)
    with embedded() as summarise:
        by_language = {
            lang: lived(lang, 4096, 0, work=True, summarise=summarise, compactions=compactions)
            for lang in LANGUAGES
        }
    yield row("embedded", by_language, after)


def lost(seeds: int) -> None:
    for window in WINDOWS:
        for noise, work in NOISE.items():
            gone: Counter[str] = Counter()
            for lang in LANGUAGES:
                for seed in range(seeds):
                    kept = lived(lang, window, seed, work=work, summarise=None, compactions=AFTER[-1])
                    gone.update(f"{lang} {f.by} {f.key if f.exact else 'prose'}" for f in kept.gone)
            print(f"\nwindow {window}, {noise}")
            print("\n".join(f"{number:4} {what}" for what, number in sorted(gone.items())))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--lost", action="store_true")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--compactions", type=int, default=3, help="with --embedded")
    asked = parser.parse_args()
    if asked.lost:
        lost(asked.seeds)
        return
    every = [f"# What the prompt still knows\n\nPython {platform.python_version()}, {asked.seeds} seeds."]
    print(every[0])
    for line in with_embedded(asked.compactions) if asked.embedded else tables(asked.seeds):
        print(line, flush=True)
        every.append(line)
    if not asked.embedded:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(every) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
