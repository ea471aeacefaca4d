"""What a source, format, sink or operation of another package is made of; see docs/extending.md. Importing this loads no Spark."""

from ebbtide.errors import EbbtideError, Terminal, Transient
from ebbtide.formats.format import Format
from ebbtide.ledger.facts import StepFacts, TableFacts
from ebbtide.maintenance.operation import Context, Operation, Report
from ebbtide.model.decision import Action, Apply, Clear, Restore
from ebbtide.sinks.sink import ChangeSet, Sink, Work
from ebbtide.sources.source import Discovery, Source

__all__ = [
    "Action",
    "Apply",
    "ChangeSet",
    "Clear",
    "Context",
    "Discovery",
    "EbbtideError",
    "Format",
    "Operation",
    "Report",
    "Restore",
    "Sink",
    "Source",
    "StepFacts",
    "TableFacts",
    "Terminal",
    "Transient",
    "Work",
]
