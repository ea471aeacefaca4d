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
        help="Folder of the source's files; a pattern in the last name writes one file for all matching folders: 'data/*'.",
    ),
    click.option("--bootstrap-servers", metavar="HOST:PORT,..", help="Kafka's brokers, instead of a folder."),
    click.option(
        "--property",
        "properties",
        metavar="NAME=VALUE",
        multiple=True,
        help="A setting of the Kafka client; a credential as ${NAME}.",
    ),
    click.option("--registry", metavar="URL", help="Schema registry: the topic's records are Avro."),
    click.option("--registry-username", metavar="NAME", help="User name at the registry."),
    click.option("--registry-password", metavar="${NAME}", help="The password's variable."),
    click.option("--topic", help="Read only records of this topic."),
    click.option("--topic-pattern", metavar="PATTERN", help="Write one file for all matching topics: 'shop.public.*'."),
    click.option("--table", help="Read only Debezium events of this source table."),
)
"""The options that name the source."""
_SPEC = (
    click.option("--key", metavar="COLUMN,..", help="The primary key. Default: from the records."),
    click.option(
        "--sequence",
        metavar="COLUMN,..",
        help="The order of a key's changes. Default: the position in the database's log.",
    ),
    click.option(
        "--column",
        "columns",
        metavar="'NAME TYPE'",
        multiple=True,
        help="A column with a known type: 'total DECIMAL(12,2)'. Default: from the records.",
    ),
    click.option("--sample", type=click.IntRange(1), default=1000, show_default=True, help="Size of the sample."),
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
"""The options for facts that records do not show, and for the places of files."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in reversed((*_SOURCE, *_SPEC)):  # click lists the last one first
        command = decorate(command)
    return command


@click.command()
@click.argument("name")
@_options
def new(name: str, **options: Any) -> None:
    """Write a spec and its test from real records.

    Format, columns, types, key and order are derived from the first records of the source. Open points are written as comments
    above the spec. Only the sample is run, in memory. The command fails if the spec refuses a record of it, or if the result
    differs from the source's rows.
    """
    from ebbtide.cli.proposing import write_proposal
    from ebbtide.cli.proposing_sources import Asked

    write_proposal(name, Asked.of(options))
