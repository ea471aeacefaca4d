"""`ebbtide sql`: statements, typed or from scripts."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ebbtide.cli.errors import FAILED, USAGE, error_text
from ebbtide.cli.places import defs_option, py_files_option, root_option
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.redaction import shown
from ebbtide.sql import ResultFormat, Shell, Target

if TYPE_CHECKING:
    from ebbtide.sql import Script

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
_OF_THIS_PROCESS = ("root", "defs", "environment", "py_files")
"""Options for the data of an embedded session."""


def _target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for a session's data to a command."""
    options = (
        defs_option,
        root_option,
        click.option("--environment", type=_EXISTING, help="A YAML file of sources, functions, variables, settings."),
        py_files_option,
        click.option("--gateway", metavar="URL", help="Let a gateway execute the statements, on its data."),
        click.option("--token-file", type=_EXISTING, help="The gateway's token: a file of mode 600."),
        click.option("--token-env", "token_variable", help="The gateway's token: the name of a variable."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("sql")
@click.option("-e", "text", metavar="STATEMENTS", help="Execute these statements and leave.")
@click.option("-f", "file", type=_EXISTING, help="Execute the statements of a file and leave.")
@click.option("-i", "init", type=_EXISTING, help="Execute the statements of a file first.")
@click.option(
    "-D", "definitions", metavar="NAME=VALUE", multiple=True, help="${NAME} in statements is replaced by VALUE."
)
@click.option(
    "--format",
    "result_format",
    type=click.Choice([form.value for form in ResultFormat]),
    default=ResultFormat.TABLE.value,
    show_default=True,
    help="How rows are shown; SET result-format changes it.",
)
@_target_options
@click.pass_context
def sql(
    context: click.Context,
    /,
    text: str | None,
    file: Path | None,
    init: Path | None,
    definitions: tuple[str, ...],
    result_format: str,
    **of_target: Any,
) -> None:
    """Execute SQL: typed, from a script, or from standard input. HELP lists the statements.

    The first statement of a script that fails ends it.

    Exit codes: 0 done; 1 a statement failed; 2 wrong usage; 130 ended by Ctrl-C.
    """
    if text is not None and file is not None:
        raise click.UsageError("Got -e and -f. Allowed: one of them.")
    _refuse_unfit(context, **of_target)
    target = Target(**of_target)
    has_script = text is not None or file is not None
    is_interactive = not has_script and sys.stdin.isatty() and sys.stdout.isatty()
    for stream in (sys.stdout, sys.stderr):
        _take_all(stream)
    with _errors(target.root):
        values = _variables(definitions)
        with Shell(
            target.open,
            lambda: {**target.variables(), **values},
            ResultFormat(result_format),
            sys.stdout,
            sys.stderr,
            is_interactive=is_interactive,
        ) as shell:
            has_quit = shell.run(_scripts(init, file, text, is_interactive=is_interactive))
            if is_interactive and not has_quit:
                shell.interact(lambda error: f"Error: {_error_text(error, target.root)}")


def _take_all(stream: TextIO) -> None:
    """Make a stream escape characters that its encoding lacks."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _scripts(init: Path | None, file: Path | None, text: str | None, *, is_interactive: bool) -> Iterator[Script]:
    """Yield the scripts to execute before the prompt."""
    if init is None and is_interactive:
        return  # loads nothing
    from ebbtide.sql import Script

    if init is not None:
        yield Script.read(init)
    if file is not None:
        yield Script.read(file)
    elif text is not None:
        yield Script("-e", text, Path.cwd())
    elif not is_interactive:
        yield Script("standard input", sys.stdin.read(), Path.cwd())


def _variables(definitions: tuple[str, ...]) -> Mapping[str, str]:
    """Return the variables of -D, which go before those of the environment's file."""
    if not definitions:
        return {}  # loads nothing
    from ebbtide.sql import Script

    return Script.variables(definitions)


def _refuse_unfit(
    context: click.Context, gateway: str | None, token_file: Path | None, token_variable: str | None, **_: Any
) -> None:
    """Refuse options that would be ignored."""
    if token_file is not None and token_variable is not None:
        raise click.UsageError("Got --token-env and --token-file. Allowed: one of them.")
    if gateway is None and (token_file or token_variable):
        raise click.UsageError("Got a token. Allowed: with --gateway.")
    given = [name for name in _OF_THIS_PROCESS if _is_typed(context, name)]
    if gateway is not None and given:
        raise click.UsageError(
            f"Got --gateway and --{given[0].replace('_', '-')}. The gateway uses the data it was started with."
        )


def _is_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


@contextmanager
def _errors(root: str) -> Iterator[None]:
    """Print an error and end with its code."""
    try:
        yield
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    except EbbtideError as error:
        click.echo(shown(f"Error: {_error_text(error, root)}"), err=True)
        is_usage = isinstance(error, ConfigError)
        raise click.exceptions.Exit(USAGE if is_usage else FAILED) from error


def _error_text(error: Exception, root: str) -> str:
    places = getattr(error, "__notes__", ())  # of the failed statement of a script
    return ": ".join([*places, error_text(error, root)])
