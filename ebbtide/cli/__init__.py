"""The command line."""

from ebbtide.cli.commands import main

__all__ = ["main"]
