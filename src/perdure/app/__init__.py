"""The only place where adapters are chosen and put together."""

from perdure.app.agent import Agent
from perdure.app.opening import (
    built_in_tools,
    config_folder,
    new_session_name,
    open_archive,
    open_embedder,
    open_journal,
    open_model,
    path_of,
)
from perdure.app.sessions import Sessions

__all__ = [
    "Agent",
    "Sessions",
    "built_in_tools",
    "config_folder",
    "new_session_name",
    "open_archive",
    "open_embedder",
    "open_journal",
    "open_model",
    "path_of",
]
