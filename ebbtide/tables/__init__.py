"""The tables of a pipeline: its state, and the output tables sink, changelog and quarantine. `table` has their contract."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.tables._delta_sink import SinkTable as SinkTable
    from ebbtide.tables._quarantine import COLUMNS as COLUMNS
    from ebbtide.tables._quarantine import QuarantineTable as QuarantineTable
    from ebbtide.tables._quarantine import Selection as Selection
    from ebbtide.tables._sink import Sink as Sink
    from ebbtide.tables._state.change_set import StepChanges as StepChanges
    from ebbtide.tables._state.foreign_changes import foreign_change as foreign_change
    from ebbtide.tables._state.layout import ROW as ROW
    from ebbtide.tables._state.layout import FileSizes as FileSizes
    from ebbtide.tables._state.layout import files_noted as files_noted
    from ebbtide.tables._state.layout import may_hold_expired as may_hold_expired
    from ebbtide.tables._state.layout import newest_step as newest_step
    from ebbtide.tables._state.lookup import Stored as Stored
    from ebbtide.tables._state.rewriting import BASE as BASE
    from ebbtide.tables._state.rewriting import Keep as Keep
    from ebbtide.tables._state.rewriting import KeepEntries as KeepEntries
    from ebbtide.tables._state.rewriting import Rewrite as Rewrite
    from ebbtide.tables._state.rewriting import StoredEntries as StoredEntries
    from ebbtide.tables._state.table import StateTable as StateTable
    from ebbtide.tables._table import Work as Work
else:
    __getattr__, __all__ = names_of(__name__)
