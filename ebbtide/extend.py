"""Names for sources, formats, sinks and operations of other packages; see docs/how-to/extending.md. Importing this loads no Spark."""

from ebbtide.changelog import RowKind
from ebbtide.errors import EbbtideError, SourceLostError, SourceReadError, SourceUnavailableError, Terminal, Transient
from ebbtide.formats import PLACED_RECORDS, BadRecordError, DecodedChange, Format
from ebbtide.ledger import StepFacts, TableFacts
from ebbtide.model import Action, Apply, Clear, Erase, Restore, Rewrite
from ebbtide.operations import Context, Operation, Report
from ebbtide.runtime import Observer, RunBegun, RunEnded
from ebbtide.sources import Available, Backlog, PositionedSource, SourceSettings, Span
from ebbtide.tables import ChangeSet, Sink, Work

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
    "Rewrite",
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
