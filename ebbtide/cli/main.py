"""The command line: `ebbtide --help` lists its commands.

Exit codes: 0 done, 1 failed, 2 wrong usage or a spec that is not usable, 3 a source without a file that matches, 4 a pipeline that is
paused, 5 refused: retrying does not help until someone acts.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

import click

from ebbtide.cli.commands import NamingGroup, with_example
from ebbtide.cli.errors import error_text, exit_code
from ebbtide.cli.verbs import ADDED, WRITTEN, sections
from ebbtide.environment import VARIABLES, refuse_unusable_variables
from ebbtide.errors import ConfigError, MissingExtraError
from ebbtide.operations import Listed


class _Commands(NamingGroup):
    """Loads commands lazily: `ebbtide sql` prompts long before the code for running pipelines would be loaded."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; say which extra it needs, if its libraries are missing."""
        try:
            return super().invoke(ctx)
        except (MissingExtraError, ModuleNotFoundError) as error:
            missing = MissingExtraError.in_place_of(error) if isinstance(error, ModuleNotFoundError) else error
            if not isinstance(missing, MissingExtraError):
                raise
            click.echo(f"Error: {error_text(missing)}", err=True)
            raise click.exceptions.Exit(exit_code(missing)) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = [name for commands in sections().values() for name in commands]
        return [*own, *_added(own)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Modules are loaded by name, so a command does not load the libraries of all commands.
        written = WRITTEN.get(cmd_name)
        if written is not None and written.place:
            command: click.Command = resolve_name(f"ebbtide.cli.{written.place}")
            return with_example(command, cmd_name)
        from ebbtide.cli.operations import command_named

        found = command_named(cmd_name)
        return None if found is None else with_example(found, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by purpose; only commands of other packages are loaded for this."""
        shown = sections()
        own = [name for commands in shown.values() for name in commands]
        of_others = _added(own)
        shown[ADDED] = {name: self._summary_of(ctx, name) for name in of_others}
        width = max(map(len, [*own, *of_others]))
        for heading, commands in shown.items():
            if commands:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])
        with formatter.section("Environment"):
            formatter.write_dl([(each.name, each.meaning) for each in VARIABLES])

    def _summary_of(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return "" if command is None else (command.help or "").partition(". ")[0].rstrip(".") + "."


def _added(own: list[str]) -> list[str]:
    """Return the first words of operations from other packages."""
    return sorted(Listed.added().difference(own))


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='Each command has --help with an example. Completion in bash: eval "$(_EBBTIDE_COMPLETE=bash_source ebbtide)".',
)
@click.version_option(package_name="ebbtide")
def main() -> None:
    """Correct Delta tables from change events that arrive out of order.

    SPEC is a defs.yaml, the folder that holds one, or a folder of such folders.
    Tables are below --root. Default: the folder .ebbtide of the spec's project, which is the nearest
    folder above it with a pyproject.toml; outside of a project, of the working folder.

    Exit codes: 0 done, even if nothing is new; 1 failed; 2 wrong usage or spec; 3 no file in a source's folder matches;
    4 a pipeline is paused; 5 refused: retrying does not help until you act.
    """
    try:
        refuse_unusable_variables()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
