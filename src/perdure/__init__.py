"""perdure: an agent that keeps working in any context window and never forgets what it was told."""

__version__ = "0.1.0"
