"""Counting tokens: how fast, how exact, and how high the estimate for unknown models is.

    python bench/tokens.py [PYTHON]

PYTHON is the interpreter of another environment with `tiktoken` and `bpe-openai` (whose wheel holds
the vocabulary that tiktoken would fetch): then both are measured, in turns, each round in fresh
processes, and their counts are compared. Texts: what this Python's library and packages hold, and
what is made here from a fixed seed.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable
from pathlib import Path

ROUNDS = 3
CHUNK = 2000
COUNTED = Path(__file__).parent.parent / "tests" / "chat" / "counted_texts.json"
CURRENT = (
    *("o200k_base", "cl100k_base", "llama3", "qwen3", "deepseek_v3", "glm4", "kimi_k2", "gemma3", "phi4"),
    *("mistral_v3", "mistral_v1", "llama2"),
)


def texts() -> dict[str, list[str]]:
    """Kind to messages of about `CHUNK` characters, no two alike."""
    dice = random.Random(1)
    library = Path(sysconfig.get_path("stdlib"))
    code = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(library.glob("*.py"))[::2]]
    about = Path(sysconfig.get_path("purelib")).glob("*.dist-info/METADATA")
    prose = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(about)]
    known = {kind: each["text"] for kind, each in json.loads(COUNTED.read_text(encoding="utf-8")).items()}
    chinese = [*known["chinese"], *known["chinese talk"], *known["chinese poem"]]
    rows = (
        {"id": str(uuid.UUID(int=dice.getrandbits(128))), "at": dice.random(), "ok": dice.random() < 0.5}
        for _ in range(4000)
    )
    made = {
        "prose": "".join(prose),
        "code": "".join(code),
        "JSON": json.dumps(list(rows)),
        "Chinese": "".join(dice.choice(chinese) for _ in range(200_000)),
        "base64": base64.b64encode(dice.randbytes(150_000)).decode(),
    }
    return {
        kind: [text[at : at + CHUNK] for at in range(0, min(len(text), 1_500_000), CHUNK)]
        for kind, text in made.items()
    }


def loaded(name: str) -> Callable[[str], list[int]]:
    if name == "splintr":
        from splintr import Tokenizer

        return Tokenizer.from_pretrained("o200k_base").encode_ordinary  # type: ignore[no-any-return]
    import gzip

    import bpe_openai
    import tiktoken
    import tiktoken.load
    import tiktoken_ext.openai_public as public

    packed = Path(bpe_openai.__file__).parent / "data" / "o200k_base.tiktoken.gz"
    lines = (line.split() for line in gzip.decompress(packed.read_bytes()).splitlines() if line)
    public.load_tiktoken_bpe = lambda *_, **__: {base64.b64decode(token): int(rank) for token, rank in lines}
    return tiktoken.Encoding(**public.o200k_base()).encode_ordinary


def work(name: str) -> None:
    """Measure one tokenizer on the texts that come in; print load seconds, speeds and counts."""
    every: dict[str, list[str]] = json.load(sys.stdin)
    began = time.perf_counter()
    encode = loaded(name)
    encode("x")
    report: dict[str, object] = {"load": time.perf_counter() - began}
    for kind, messages in every.items():
        size = sum(len(message.encode()) for message in messages)
        speeds, counts = [], []
        for _ in range(2):
            began = time.perf_counter()
            counts = [len(encode(message)) for message in messages]
            speeds.append(size / (time.perf_counter() - began) / 1e6)
        report[kind] = {"cold": speeds[0], "warm": speeds[1], "counts": counts}
    json.dump(report, sys.stdout)


def measured(python: str, name: str, given: str) -> dict[str, dict[str, list[int] | float]]:
    command = [python, __file__, "work", name]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    report: dict[str, dict[str, list[int] | float]] = json.loads(done.stdout)
    return report


def speeds(every: dict[str, list[str]], pythons: dict[str, str]) -> None:
    given = json.dumps(every)
    reports: dict[str, list[dict[str, dict[str, list[int] | float]]]] = {name: [] for name in pythons}
    for _ in range(ROUNDS):
        for name, python in pythons.items():
            reports[name].append(measured(python, name, given))
    print(f"o200k, MB/s in messages of {CHUNK} characters: first time, again (median of {ROUNDS} rounds)\n")
    print(f"{'':9} {'load ms':>8} " + "".join(f"{kind:>14}" for kind in every))
    for name, rounds in reports.items():
        load = statistics.median(float(report["load"]) for report in rounds)  # type: ignore[arg-type]
        line = f"{name:9} {load * 1000:8.0f} "
        for kind in every:
            first, again = (
                statistics.median(float(report[kind][which]) for report in rounds)  # type: ignore[arg-type]
                for which in ("cold", "warm")
            )
            line += f"{f'{first:.0f}, {again:.0f}':>14}"
        print(line)
    if len(reports) > 1:
        splintr, tiktoken = (rounds[0] for rounds in reports.values())
        same = all(splintr[kind]["counts"] == tiktoken[kind]["counts"] for kind in every)
        print(f"\nCounts of all {sum(map(len, every.values()))} messages equal: {'yes' if same else 'NO'}")


def estimates(every: dict[str, list[str]]) -> None:
    from perdure.chat.encodings import tokens_in
    from perdure.chat.estimate import estimated_tokens

    known = json.loads(COUNTED.read_text(encoding="utf-8"))
    samples = {kind: messages[:150] for kind, messages in every.items()}
    samples |= {kind: [each["text"]] for kind, each in known.items() if len(each["text"]) > 80}
    print("\nEstimate for unknown models / true count\n")
    print(f"{'':22}" + "".join(f"{encoding.split('_base')[0]:>12}" for encoding in CURRENT))
    size = 0
    for kind, messages in samples.items():
        estimate = sum(estimated_tokens(message) for message in messages)
        size += sum(len(message.encode()) for message in messages)
        ratios = (
            estimate / sum(tokens_in(message, encoding) for message in messages) for encoding in CURRENT
        )
        print(f"{kind:22}" + "".join(f"{ratio:12.2f}" for ratio in ratios))
    began = time.perf_counter()
    for messages in samples.values():
        for message in messages:
            estimated_tokens(message)
    print(f"\nThe estimate again: {size / (time.perf_counter() - began) / 1e6:.1f} MB/s")


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        return work(sys.argv[2])
    every = texts()
    pythons = {"splintr": sys.executable}
    if len(sys.argv) > 1:
        pythons["tiktoken"] = sys.argv[1]
    speeds(every, pythons)
    estimates(every)
    return None


if __name__ == "__main__":
    main()
