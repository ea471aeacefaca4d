"""The ledger: the facts of steps, who writes them, and the checkpoint."""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.ledger._checkpoint import Checkpoint as Checkpoint
    from ebbtide.ledger._erasures import Erasures as Erasures
    from ebbtide.ledger._erasures import erased_keys as erased_keys
    from ebbtide.ledger._erasures import ledger_of as ledger_of
    from ebbtide.ledger._erasures import mark_unfinished as mark_unfinished
    from ebbtide.ledger._erasures import unfinished as unfinished
    from ebbtide.ledger._facts import Cause as Cause
    from ebbtide.ledger._facts import Head as Head
    from ebbtide.ledger._facts import LedgerFacts as LedgerFacts
    from ebbtide.ledger._facts import NoStep as NoStep
    from ebbtide.ledger._facts import SourceFacts as SourceFacts
    from ebbtide.ledger._facts import StepFacts as StepFacts
    from ebbtide.ledger._facts import TableFacts as TableFacts
    from ebbtide.ledger._foreign_writes import DataCommit as DataCommit
    from ebbtide.ledger._foreign_writes import data_commits as data_commits
    from ebbtide.ledger._foreign_writes import foreign_writes_text as foreign_writes_text
    from ebbtide.ledger._lease import Lease as Lease
    from ebbtide.ledger._lease import holder_of as holder_of
    from ebbtide.ledger._pauses import refuse_paused as refuse_paused
    from ebbtide.ledger._puts import puts_of as puts_of
    from ebbtide.ledger._settling import settle as settle
    from ebbtide.ledger._tables import BESIDE_STATE as BESIDE_STATE
    from ebbtide.ledger._tables import OwnTable as OwnTable
    from ebbtide.ledger._tables import gone as gone
    from ebbtide.ledger._verdicts import LastVerdict as LastVerdict
else:
    __getattr__, __all__ = names_of(__name__)
