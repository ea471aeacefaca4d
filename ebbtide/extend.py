"""Names for sources, formats, sinks and operations of other packages; see docs/how-to/extending.md. Importing this loads no Spark."""

from ebbtide.errors import EbbtideError, SourceLostError, SourceReadError, SourceUnavailableError, Terminal, Transient
from ebbtide.formats.format import BadRecordError, DecodedChange, Format
from ebbtide.formats.records import PLACED_RECORDS
from ebbtide.ledger.facts import StepFacts, TableFacts
from ebbtide.model.changelog import RowKind
from ebbtide.model.decision import Action, Apply, Clear, Erase, Restore
from ebbtide.operations.operation import Context, Operation, Report
from ebbtide.runtime.observers import Observer, RunBegun, RunEnded
from ebbtide.sources.available import Available
from ebbtide.sources.positioned import PositionedSource, SourceSettings
from ebbtide.sources.source import Backlog
from ebbtide.sources.span import Span
from ebbtide.tables.sink import Sink
from ebbtide.tables.table import ChangeSet, Work

__all__ = [
    "PLACED_RECORDS",
    "Action",
    "Apply",
    "Available",
    "Backlog",
    "BadRecordError",
    "ChangeSet",
    "Clear",
    "Context",
    "DecodedChange",
    "EbbtideError",
    "Erase",
    "Format",
    "Observer",
    "Operation",
    "PositionedSource",
    "Report",
    "Restore",
    "RowKind",
    "RunBegun",
    "RunEnded",
    "Sink",
    "SourceLostError",
    "SourceReadError",
    "SourceSettings",
    "SourceUnavailableError",
    "Span",
    "StepFacts",
    "TableFacts",
    "Terminal",
    "Transient",
    "Work",
]
