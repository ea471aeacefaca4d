"""The tables of a pipeline: its state, and the output tables sink, changelog and quarantine.

A `Table` performs the action of a step, given its `Work`; `Sink` is the base class of sinks of other packages, `SinkTable` the
Delta sink.
`StateTable` has the entries of the pipeline and commits steps. `Stored` reads rows of its data files, all or those of some keys, and
`StateWriter` writes files. A `RowSelection` returns rows that fulfil a condition. `StoredEntries` divides the entries by `HashRange`, and `RewriteEntries` writes what a `Keep` returns of each.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.tables._changelog import ChangelogTable as ChangelogTable
    from ebbtide.tables._delta_sink import SinkTable as SinkTable
    from ebbtide.tables._quarantine import QuarantineTable as QuarantineTable
    from ebbtide.tables._quarantine import Selection as Selection
    from ebbtide.tables._selecting import RowSelection as RowSelection
    from ebbtide.tables._sink import Sink as Sink
    from ebbtide.tables._state.layout import EntryKind as EntryKind
    from ebbtide.tables._state.lookup import FoundRows as FoundRows
    from ebbtide.tables._state.lookup import Stored as Stored
    from ebbtide.tables._state.ranges import HashRange as HashRange
    from ebbtide.tables._state.rewriting import Keep as Keep
    from ebbtide.tables._state.rewriting import KeepEntries as KeepEntries
    from ebbtide.tables._state.rewriting import RewriteEntries as RewriteEntries
    from ebbtide.tables._state.rewriting import StoredEntries as StoredEntries
    from ebbtide.tables._state.table import StateTable as StateTable
    from ebbtide.tables._state.writing import StateWriter as StateWriter
    from ebbtide.tables._table import ChangeSet as ChangeSet
    from ebbtide.tables._table import Table as Table
    from ebbtide.tables._table import Take as Take
    from ebbtide.tables._table import Work as Work
else:
    __getattr__, __all__ = names_of(__name__)
