"""The command line."""

from ebbtide.cli.main import main

__all__ = ["main"]
