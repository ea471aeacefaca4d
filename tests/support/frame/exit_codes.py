"""Exit codes of commands, as docs/reference/command-line.md has them."""

FAILED, USAGE, NOTHING_MATCHED, PAUSED, REFUSED = range(1, 6)
