"""Every connection except loopback is refused; home and environment are isolated."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path

import hypothesis
import pytest

# A vocabulary that loads, or a busy machine, is no failure: how fast things are is for bench/.
# `deep` is for a run of its own (HYPOTHESIS_PROFILE=deep, without the timeout of a test).
hypothesis.settings.register_profile("ordinary", deadline=None, max_examples=100)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=10_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))


def pytest_configure() -> None:
    for name in list(os.environ):
        own = name.startswith(("OPENAI_", "PERDURE_"))
        # A terminal that a test opens has a size of its own; readline leaves these to a worker.
        if own or name.lower().endswith("_proxy") or name in {"COLUMNS", "LINES"}:
            del os.environ[name]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The embedded model is loaded once, by the one worker that runs its tests; two of them would
    only keep each other from the cores that each needs."""
    for item in items:
        if item.get_closest_marker("embedded"):
            item.add_marker(pytest.mark.xdist_group("embedded"))


@pytest.fixture(autouse=True)
def isolated_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0]  # type: ignore[index]
            if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
                raise OSError(f"a test tried to connect to {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
