"""`ebbtide replay`: runs cases of state operations or changelogs, and compares the output with the expected one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.commands import NamingGroup
from ebbtide.cli.errors import FAILED
from ebbtide.cli.reporting import Reporter
from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from ebbtide.replay import PlayedCase

Cases = list[Any]


@click.group(cls=NamingGroup)
def replay() -> None:
    """Run cases; print each with its `output`. Exit code 1 if an `expected` differs."""


_cases_option = click.option(
    "--cases",
    type=click.File(encoding="utf-8"),
    default="-",
    help="A file of cases, one JSON object per line. Default: standard input.",
)


@replay.command("ttl")
@_cases_option
@click.option(
    "--store",
    type=click.Choice(["heap", "rocksdb", "delta"]),
    default="heap",
    show_default=True,
    help="Store of the states.",
)
def replay_states(cases: Any, store: str) -> None:
    """Run scripts of state operations."""
    from ebbtide.replay import replay_ttl

    _play(cases, lambda parsed: replay_ttl(parsed, store))


_strategy_option = click.option(
    "--strategy",
    type=click.Choice(["LEGACY", "VALUE", "MAP", "ADAPTIVE", "COLUMNAR"]),
    default="ADAPTIVE",
    show_default=True,
    help="Form of histories; pipelines use COLUMNAR.",
)
_histories_option = click.option(
    "--store",
    type=click.Choice(["heap", "rocksdb"]),
    default="heap",
    show_default=True,
    help="Store of the histories.",
)
_upsert_key_option = click.option(
    "--upsert-key",
    type=click.Choice(["none", "col"]),
    help="Match whole rows, or only `uk`. Default: the case's.",
)
_ttl_option = click.option(
    "--ttl-ms",
    type=click.IntRange(0),
    help="Time to live, ms; 0: never expires. Default: the case's.",
)
_high_option = click.option(
    "--high",
    type=click.IntRange(1),
    help="ADAPTIVE: rows at which a list becomes linked nodes. Default: the case's, else the store's.",
)
_low_option = click.option(
    "--low",
    type=click.IntRange(0),
    help="ADAPTIVE: rows at which nodes become a list. Default: the case's, else the store's.",
)


@replay.command("materializer")
@_cases_option
@_strategy_option
@_histories_option
@_upsert_key_option
@_ttl_option
@_high_option
@_low_option
def replay_changelogs(cases: Any, strategy: str, store: str, **settings: Any) -> None:
    """Run changelogs through the upsert materializer."""
    from ebbtide.replay import replay_materializer

    _play(cases, lambda parsed: replay_materializer(parsed, strategy, store, **settings))


def _play(lines: Any, play: Callable[[Cases], Iterator[PlayedCase]]) -> None:
    """Run cases and print them.

    Args:
        lines: The cases as JSON, one per line.
        play: Plays them.
    """
    n_wrong = 0
    with Reporter().errors():
        cases = _parsed(lines)
        for played in play(cases):
            click.echo(json.dumps(played.case))
            n_wrong += played.differs
    if n_wrong:
        click.echo(f"{n_wrong} of {len(cases)} cases differ.", err=True)
        raise click.exceptions.Exit(FAILED)


def _parsed(lines: Any) -> Cases:
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise ConfigError.of(f"The cases cannot be read: {error}.", allowed="one JSON object per line") from error
