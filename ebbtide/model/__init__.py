"""The facts of a step as they are stored: its decision, its frontier, its clock and its counts.

Pure: no Spark, no files, no clock but the one passed in.

A `Decision` has one `Action` for each table. `BatchSummary` has the totals of a batch and is known before the decision. The
next `Frontier` follows from the last one, the clock and the summary. A `SchemaChange` turns the stored columns into a spec's
new ones.
`StoredDocument` reads what an earlier run has stored.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.model._clock import Reading as Reading
    from ebbtide.model._decision import Action as Action
    from ebbtide.model._decision import Alter as Alter
    from ebbtide.model._decision import Append as Append
    from ebbtide.model._decision import Apply as Apply
    from ebbtide.model._decision import Clear as Clear
    from ebbtide.model._decision import Decision as Decision
    from ebbtide.model._decision import Erase as Erase
    from ebbtide.model._decision import Replace as Replace
    from ebbtide.model._decision import Restore as Restore
    from ebbtide.model._decision import RestoreAndApply as RestoreAndApply
    from ebbtide.model._decision import Rewrite as Rewrite
    from ebbtide.model._decision import Source as Source
    from ebbtide.model._erased import ErasedKeys as ErasedKeys
    from ebbtide.model._options import NoOptions as NoOptions
    from ebbtide.model._schema_change import SchemaChange as SchemaChange
    from ebbtide.model._step import BatchCounts as BatchCounts
    from ebbtide.model._step import BatchSummary as BatchSummary
    from ebbtide.model._step import Frontier as Frontier
    from ebbtide.model._step import StepRecords as StepRecords
    from ebbtide.model._step import StepRules as StepRules
    from ebbtide.model._step import TableVersion as TableVersion
    from ebbtide.model._step import ViewPosition as ViewPosition
    from ebbtide.model._step import WholeSnapshot as WholeSnapshot
    from ebbtide.model._stored import StoredDocument as StoredDocument
else:
    __getattr__, __all__ = names_of(__name__)
