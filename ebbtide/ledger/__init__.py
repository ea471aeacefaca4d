"""The ledger: the decisions of a pipeline's steps, the lease on its tables, and further records.

A step's facts (`StepFacts`) are in the commit of each table that it writes; the newest ones are the `Head`. The `Ledger` of a pipeline holds
its turns (`LedgerFacts`): the `Lease`, pauses, requests and the `Beginning`. `OwnTable` reads which step wrote an output table, and lets
Spark commit to it as a step. `ForeignWrites` are the commits of other clients, read since the end of a window.
`ErasureLedger`, `LastVerdict` and `KeptRun`, the end of a run, are files in the pipeline's folder.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.ledger._erasures import ErasureLedger as ErasureLedger
    from ebbtide.ledger._facts import Beginning as Beginning
    from ebbtide.ledger._facts import Cause as Cause
    from ebbtide.ledger._facts import Head as Head
    from ebbtide.ledger._facts import LedgerFacts as LedgerFacts
    from ebbtide.ledger._facts import NoStep as NoStep
    from ebbtide.ledger._facts import SourceFacts as SourceFacts
    from ebbtide.ledger._facts import StateFacts as StateFacts
    from ebbtide.ledger._facts import StepFacts as StepFacts
    from ebbtide.ledger._facts import TableFacts as TableFacts
    from ebbtide.ledger._foreign_writes import DataCommit as DataCommit
    from ebbtide.ledger._foreign_writes import ForeignWrites as ForeignWrites
    from ebbtide.ledger._lease import Holder as Holder
    from ebbtide.ledger._lease import Lease as Lease
    from ebbtide.ledger._ledger import Ledger as Ledger
    from ebbtide.ledger._runs import KeptRun as KeptRun
    from ebbtide.ledger._tables import OwnTable as OwnTable
    from ebbtide.ledger._verdicts import LastVerdict as LastVerdict
    from ebbtide.ledger._writers import writer_of as writer_of
else:
    __getattr__, __all__ = names_of(__name__)
