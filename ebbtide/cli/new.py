"""`ebbtide new`: a spec and its test from real records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from ebbtide.cli.options import json_option
from ebbtide.cli.places import PROJECT_DEFS, PROJECT_TESTS, in_project

_SOURCE = (
    click.option(
        "--path",
        help="Folder of the source's files; one file for all folders by a pattern in the last name: 'data/*'.",
    ),
    click.option("--bootstrap-servers", metavar="HOST:PORT,..", help="Kafka's brokers, in the place of a folder."),
    click.option(
        "--property",
        "properties",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of the Kafka client; a credential as ${NAME}.",
    ),
    click.option("--registry", metavar="URL", help="Schema registry: the topic's records are Avro."),
    click.option("--registry-username", metavar="NAME", help="Who asks it."),
    click.option("--registry-password", metavar="${NAME}", help="The password's variable."),
    click.option("--topic", help="Take only records of this topic."),
    click.option(
        "--topic-pattern", metavar="PATTERN", help="One file for all topics that it matches: 'shop.public.*'."
    ),
    click.option("--table", help="Take only Debezium events of this source table."),
)
"""The options that name the source."""
_SPEC = (
    click.option("--key", metavar="COLUMN,..", help="The primary key. Default: that of the records."),
    click.option(
        "--sequence", metavar="COLUMN,..", help="What orders a key's changes. Default: the place in the database's log."
    ),
    click.option(
        "--column",
        "columns",
        metavar="'NAME TYPE'",
        multiple=True,
        help="A column whose type is known: 'total DECIMAL(12,2)'. Default: by the records.",
    ),
    click.option("--sample", type=click.IntRange(1), default=1000, show_default=True, help="Records to go by."),
    click.option(
        "--defs",
        default=partial(in_project, PROJECT_DEFS),
        show_default=f"{PROJECT_DEFS} of the project",
        help="Folder of the definitions.",
    ),
    click.option(
        "--tests",
        default=partial(in_project, PROJECT_TESTS),
        show_default=f"{PROJECT_TESTS} of the project",
        help="Folder of the tests.",
    ),
    json_option,
)
"""The options that say what records leave open, and where the files go."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in reversed((*_SOURCE, *_SPEC)):  # click lists the last one first
        command = decorate(command)
    return command


@click.command()
@click.argument("name")
@_options
def new(name: str, **options: Any) -> None:
    """Write a spec and its test from real records.

    Format, columns, types, key and order follow from the first records of the source. What they leave open stands as comments
    above the spec. Nothing is run but the sample, in memory: where the spec does not take all of it, or makes other rows of it
    than the source has, the command fails.
    """
    from ebbtide.cli.proposing import write_proposal
    from ebbtide.cli.proposing_sources import Asked

    write_proposal(name, Asked.of(options))
