"""The commands that are made from operations: arguments, options and help come from the operation's class."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from ebbtide.cli.commands import NamingGroup
from ebbtide.cli.errors import NOTHING_MATCHED
from ebbtide.cli.live import Live, RunView
from ebbtide.cli.options import of_pipelines, spark_options
from ebbtide.cli.quarantine import quarantine
from ebbtide.cli.quiet import QuietSpark, quiet_spark
from ebbtide.cli.reporting import Located, Reporter, load_specs
from ebbtide.cli.stopping import stop_on_signal
from ebbtide.operations import Context, Operation, Report, operations
from ebbtide.users import user_name

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline

GROUPS = (
    quarantine,
    NamingGroup("backfill", help="Build new tables and swap them with those in use; or read records again."),
)
"""The groups of operations, with the handwritten commands."""
ONLY_PLANS = "Only shows the plan, unless --apply."


def command_named(name: str) -> click.Command | None:
    """Create the command of an operation, or the group below a name; None if there is none.

    Args:
        name: The first word of the command.
    """
    written = [group for group in GROUPS if group.name == name]
    group = NamingGroup(name)
    if written:
        group = NamingGroup(name, commands=dict(written[0].commands), help=written[0].help)
    with Reporter().errors():
        found = operations(name)
    for operation in found:
        command = operation_command(operation)
        if operation.name == name:
            return command
        group.add_command(command)
    return group if group.commands else None


def operation_command(operation: Operation) -> click.Command:
    """Create the command of an operation."""

    @of_pipelines
    @spark_options
    def run(specs: tuple[str, ...], root: str, *, as_json: bool, **given: Any) -> None:
        action = _action(operation, given)
        asked = {name: value for name, value in given.items() if value not in (None, ())}
        reporter = Reporter(root, as_json)
        located = load_specs(specs)
        if len(located) > 1:
            _refuse_several(operation, asked, len(located))
        # All parameters are checked before the first pipeline is touched.
        with reporter.errors():
            params = operation.asked(asked)
        with quiet_spark(root) as spark:

            def operate(location: str, spec: Pipeline) -> int:
                with _context(operation, (location, spec), reporter, spark) as ctx:
                    report = operation.act(action, ctx, params)
                reporter.result(report, Report.text, location)
                return 0 if report.has_matched else NOTHING_MATCHED

            reporter.each(located, operate, spark)

    help_text = operation.description
    if operation.is_planned:
        help_text = f"{help_text} {ONLY_PLANS}"
    own: list[click.Parameter] = [_option(name, info) for name, info in operation.Params.model_fields.items()]
    for name, help_ in _flags(operation).items():
        own.append(click.Option([operation.option_of(name)], is_flag=True, help=help_))
    name = operation.command.rpartition(" ")[2]
    command = click.command(name=name, help=help_text)(run)
    command.params += own
    return command


@contextmanager
def _context(operation: Operation, located: Located, reporter: Reporter, spark: QuietSpark) -> Iterator[Context]:
    """Yield an operation's context: lazy Spark, the live line, and a stop by signal if it accepts one."""
    location, spec = located
    view = RunView(spark.live, as_json=reporter.as_json)
    with _stopping(operation, spark.live) as stop:
        yield Context(
            spec,
            reporter.root,
            spark.executor,
            by=f"{user_name()}@{socket.gethostname()}",
            on_progress=view.step,
            on_phase=view.phase,
            stop=stop,
            beside=lambda: _specs_beside(location),
            data_docs=_data_docs(reporter.root),
        )


def _specs_beside(location: str) -> list[Pipeline]:
    """Return the specs in a spec's folder and its neighbours."""
    from ebbtide.definitions import load_all

    path = Path(location).resolve()
    is_file = path.exists() and not path.is_dir()
    own_folder = path.parent if is_file else path
    return [spec for _, spec in load_all([str(own_folder.parent)])]


def _data_docs(root: str) -> Path | None:
    """Return Dagster's default folder of Data Docs; None for a root in an object store."""
    from ebbtide.storage import Location

    return Path(root, "data_docs") if Location(root).is_local else None


@contextmanager
def _stopping(operation: Operation, live: Live) -> Iterator[threading.Event]:
    if not operation.can_stop:
        yield threading.Event()
        return
    with stop_on_signal(live) as stop:
        yield stop


def _action(operation: Operation, given: dict[str, Any]) -> str:
    """Return the requested action, and remove its flags from the options."""
    first, *_ = operation.actions
    chosen = [name for name in _flags(operation) if given.pop(name)]
    if len(chosen) > 1:
        raise click.UsageError(
            f"Got {' and '.join(map(operation.option_of, chosen))}. Allowed: one of them, or none for the {first}."
        )
    return chosen[0] if chosen else first


def _flags(operation: Operation) -> dict[str, str]:
    """Return the actions that need a flag, with their help."""
    flags = {"apply": "Do it."} if operation.is_planned else {}
    return {**flags, **operation.further}


def _refuse_several(operation: Operation, asked: Mapping[str, Any], n_specs: int) -> None:
    for name in sorted(operation.of_one.intersection(asked)):
        option = _option_name(name, operation.Params.model_fields[name])
        raise click.UsageError(f"Got {option} and {n_specs} specs. Allowed: one spec.")


def _option_name(name: str, info: FieldInfo) -> str:
    word = info.alias or name
    return f"--{word.replace('_', '-')}"


def _option(name: str, info: FieldInfo) -> click.Option:
    """Create the option of a field."""
    kind, is_list = _kind(info.annotation)
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    is_shown = not isinstance(default, bool) and default not in (None, "", [])
    # Click treats any default, even None, as a value of a required option.
    shown_default: dict[str, Any] = {"default": default} if is_shown else {}
    return click.Option(
        [name, _option_name(name, info)],
        type=_click_type(kind, info),
        is_flag=kind is bool,
        multiple=is_list,
        required=info.is_required(),
        **shown_default,
        show_default=is_shown,
        metavar=info.title,
        help=info.description,
    )


def _kind(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a value, and whether the option is repeatable."""
    if get_origin(annotation) in (Union, UnionType):
        # `str | None` is an optional option: its type is the other one.
        [annotation] = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) is list:
        [inner] = get_args(annotation)
        return inner, True
    return annotation, False


def _click_type(kind: Any, info: FieldInfo) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is not int:
        return kind
    least = [limit.ge for limit in info.metadata if hasattr(limit, "ge")]
    return click.IntRange(*least) if least else int
