"""The chat: what `perdure` alone opens at a terminal."""
