"""Settings as one frozen value, and the one place that reads them from outside."""

from perdure.config.loading import load, origins
from perdure.config.settings import Judging, Lang, Reach, Sandboxing, Settings
from perdure.config.urls import NO_HTTP, NO_KEY, is_http, is_loopback
from perdure.config.values import McpServer, ModelPrice, Secret

__all__ = [
    "NO_HTTP",
    "NO_KEY",
    "Judging",
    "Lang",
    "McpServer",
    "ModelPrice",
    "Reach",
    "Sandboxing",
    "Secret",
    "Settings",
    "is_http",
    "is_loopback",
    "load",
    "origins",
]
