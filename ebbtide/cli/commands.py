"""Groups of commands: suggestions for misspelt names, an example below each help, verbosity."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click

from ebbtide.cli.verbs import example

LEVEL = "ebbtide.cli.level"
QUIET, VERBOSE = -1, 1


def nearest(name: str, known: list[str]) -> str:
    """Return a suggestion for a misspelt name; empty if no name is similar.

    Example:
        >>> nearest("rum", ["run", "lag"]), nearest("x", ["run"])
        ("Did you mean 'run'?", '')
    """
    close = get_close_matches(name, known, n=1)
    return f"Did you mean '{close[0]}'?" if close else ""


class NamingGroup(click.Group):
    """A group that suggests the nearest command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; refuse an unknown one and list the known ones."""
        name = args[0]
        known = self.list_commands(ctx)
        is_option = name.startswith("-")
        if is_option or name in known or ctx.resilient_parsing or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        hint = nearest(name, known) or f"'{ctx.command_path} --help' lists all."
        raise click.UsageError(f"There is no command '{name}'. Allowed: {', '.join(known)}. {hint}", ctx)


def with_example(command: click.Command, path: str) -> click.Command:
    """Add an example to the help of a command; for a group, to the help of each of its commands.

    Args:
        command: The command.
        path: Its full name: 'backfill swap'.
    """
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            with_example(inner, f"{path} {name}")
        return command
    shown = example(path)
    if shown is not None:
        command.epilog = f"\b\nExample:\n  {shown}"
    return command


def level() -> int:
    """Return the verbosity of the current command: `QUIET`, 0 or `VERBOSE`."""
    context = click.get_current_context(silent=True)
    return 0 if context is None else int(context.meta.get(LEVEL, 0))


def level_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `-q` and `-v`."""
    of_run = "Also show a run's engine and the reason for it, and the traceback of an error."
    verbose = _level_option("-v", "--verbose", VERBOSE, of_run)
    quiet = _level_option("-q", "--quiet", QUIET, "Show results and errors only, no progress.")
    return quiet(verbose(command))


def _level_option(
    short: str, name: str, verbosity: int, text: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that sets one level."""
    return click.option(short, name, is_flag=True, expose_value=False, callback=_set_level(verbosity), help=text)


def _set_level(verbosity: int) -> Callable[[click.Context, click.Parameter, bool], None]:
    def keep(context: click.Context, _: click.Parameter, is_on: bool) -> None:  # noqa: FBT001 - click calls it
        if not is_on:
            return
        if context.meta.get(LEVEL, verbosity) != verbosity:
            raise click.UsageError("Got --quiet and --verbose. Allowed: one of them.")
        context.meta[LEVEL] = verbosity

    return keep
