"""The command line: `ebbtide --help` lists its commands.

Exit codes: 0 done, 1 failed, 2 wrong usage or a spec that is not usable, 3 a source without a file that matches, 4 a pipeline that is
paused, 5 refused: retrying does not help until someone acts.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pkgutil import resolve_name

import click

from ebbtide.cli.commands import NamingGroup, with_example
from ebbtide.cli.verbs import ADDED, SECTIONS, VARIABLES, summary

_HOMES = {
    "check": "checking",
    "lag": "inspection",
    "new": "new",
    "refresh": "running",
    "replay": "replaying",
    "run": "running",
    "sql": "sql",
    "sql-gateway": "sql_gateway",
    "state": "inspection",
    "status": "inspection",
}
"""The module of each command that is written by hand; all other commands are operations."""
_OPERATIONS = "ebbtide.operations"
"""The group of entry points that `ebbtide.operations.registry` reads; named here since that loads all operations."""


class _Commands(NamingGroup):
    """Loads a command when it is asked for: `ebbtide sql` prompts long before what runs pipelines would be there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = [name for commands in SECTIONS.values() for name in commands]
        return [*own, *_added(own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Modules are loaded by name, so that one command does not load the libraries of all.
        if cmd_name in _HOMES:
            function = cmd_name.replace("-", "_")
            command: click.Command = resolve_name(f"ebbtide.cli.{_HOMES[cmd_name]}:{function}")
            return with_example(command, cmd_name)
        from ebbtide.cli.operations import command_named

        found = command_named(cmd_name)
        return None if found is None else with_example(found, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by what they are for; only those of other packages are loaded for it."""
        sections = {heading: list(commands.items()) for heading, commands in SECTIONS.items()}
        own = self.list_commands(ctx)
        added = [name for name in own if summary(name) is None]
        sections[ADDED] = [(name, self._summary_of(ctx, name)) for name in added]
        width = max(map(len, own))
        for heading, lines in sections.items():
            if lines:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), text) for name, text in lines])
        with formatter.section("Environment"):
            formatter.write_dl(list(VARIABLES.items()))

    def _summary_of(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else (command.help or "").partition(". ")[0].rstrip(".") + "."


def _added(own: list[str]) -> list[str]:
    """Return the first words of operations that installed packages name."""
    words = {point.name.partition(".")[0] for point in entry_points(group=_OPERATIONS)}
    return sorted(words.difference(own))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Each command has --help with an example. Completion in bash: eval "$(_EBBTIDE_COMPLETE=bash_source ebbtide)".',
)
@click.version_option(package_name="ebbtide")
def main() -> None:
    """Correct Delta tables from change events that come out of order.

    SPEC is a defs.yaml, the folder that holds one, or a folder of such folders.
    Tables are below --root. Default: the folder .ebbtide of the spec's project, which is the nearest
    folder above it with a pyproject.toml; outside of a project, of the working folder.

    Exit codes: 0 done, also if nothing is new; 1 failed; 2 wrong usage or spec; 3 no file in a source's folder matches;
    4 a pipeline is paused; 5 refused: retrying does not help until you act.
    """
