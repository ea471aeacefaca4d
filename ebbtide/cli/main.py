"""The command line: `ebbtide --help` lists its commands.

Exit codes: 0 done, 1 failed, 2 wrong usage or a spec that is not usable, 3 a source without a file that matches, 4 a pipeline that is
paused, 5 refused: retrying does not help until someone acts.
"""

from __future__ import annotations

from pkgutil import resolve_name

import click

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


class _Commands(click.Group):
    """Loads a command when it is asked for: `ebbtide sql` prompts long before what runs pipelines would be there."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from ebbtide.operations.registry import first_words

        return sorted({*_HOMES, *first_words()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Modules are loaded by name, so that one command does not load the libraries of all.
        if cmd_name in _HOMES:
            function = cmd_name.replace("-", "_")
            command: click.Command = resolve_name(f"ebbtide.cli.{_HOMES[cmd_name]}:{function}")
            return command
        from ebbtide.cli.operations import command_named

        return command_named(cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ebbtide")
def main() -> None:
    """Upsert sinks and expiring state for Spark.

    SPEC is a defs.yaml, the folder that holds one, or a folder of such folders.

    Exit codes: 0 done, also if nothing is new; 1 failed; 2 wrong usage or spec; 3 no file in a source's folder matches;
    4 a pipeline is paused; 5 refused: retrying does not help until you act.
    """
