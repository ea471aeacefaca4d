"""The contract of a pipeline's tables: four members, and the actions that a step has a table perform.

| member | purpose |
|---|---|
| `facts` | returns the table's id and the last step that wrote it |
| `perform` | performs the action of one step, once, and stores the step's number with the rows in one piece |
| `can` | returns whether it can perform an action: a step with another one is refused before it is committed |
| `read` | reads the rows as of a version |

The actions are the classes of `ebbtide.model._decision`:

| action | sink | changelog, quarantine |
|---|---|---|
| `Apply` | takes the rows of the step's change set | - |
| `Append` | - | gets the rows that the step emitted, or found bad |
| `Restore` | goes back to an earlier version | the same |
| `RestoreAndApply` | goes back, and applies the net changes of later steps, in one commit | - |
| `Replace` | takes the rows of the same table under another root | the same |
| `Alter` | gets other columns, and keeps its rows | the same (changelog) |
| `Clear` | loses all rows, and keeps its history | the same |
| `Rewrite` | gets the rows that the state shows | gets the rows of earlier steps that it lacks |
| `Erase` | loses the rows of erased keys; the files that hold them are rewritten | the same |

A further output performs `Apply` and `Rewrite`, which gives it the rows of the sink, and may perform `Erase`.

The state performs `Append` alone, in the commit that is the decision. `ebbtide.tables._sink` has the base class of a sink of another
package. Importing this loads no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ebbtide.delta import Doomed, Snapshot
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.ledger import StepFacts, TableFacts
from ebbtide.model import Action, Alter, Erase, Replace, RestoreAndApply, Rewrite

if TYPE_CHECKING:
    from ebbtide.executors import Executor


class ChangePart(Protocol):
    """Reads a part of a change set, of whole keys; picklable."""

    def middle(self) -> int:
        """Return a hash in the middle of those of its keys."""

    def __call__(self) -> pa.Table:
        """Read `_change` and some columns of the sink, in their types."""


class ChangeSet(Protocol):
    """The decision of a step for the sink: at most one row per key, with `_change` (I, U, D) and the sink's columns."""

    def rows(self, columns: pa.Schema) -> pa.Table:
        """Read it in this process: `_change` and some columns, in these types."""

    def pieces(self, columns: pa.Schema) -> Sequence[ChangePart]:
        """Return what reads it as `rows`, in parts, each where it is called; at least one."""

    def emitted(self, columns: pa.Schema) -> pa.Table:
        """Read the emissions of the step record by record, in the columns of the changelog."""


Take = Callable[[pa.Table], Any]
"""Takes rows that must come into a sink, where they are: it writes files and returns actions, or returns the rows. Picklable."""


class Difference(Protocol):
    """The difference between the rows of a sink and those that it must have."""

    @property
    def present(self) -> pa.Table:
        """The differing keys that the sink has a row of."""

    @property
    def taken(self) -> Sequence[Any]:
        """The results of `Take` for the required rows of the differing keys, by task."""


class Work(Protocol):
    """The input of an action. A sink that is not a Delta table needs the first three members, `take_shown` as a further output, and `doomed` to erase.

    A table knows how it changes and nothing of the pipeline: it asks for rows here, and they are computed only then.
    """

    @property
    def executor(self) -> Executor:
        """Runs the work."""

    @property
    def facts(self) -> StepFacts:
        """Facts of the step."""

    @property
    def changes(self) -> ChangeSet:
        """The decision of the step for the sink, and its emissions."""

    def columns_before(self, action: Alter) -> pa.Schema:
        """Return the user's columns before the step.

        Raises:
            SpecChangedError: the spec is not the target of the migration.
        """

    def net_changes(self, action: RestoreAndApply) -> pa.Table:
        """Return the net changes of the steps to apply again: `_change` and all columns, each key once."""

    def way_back(self) -> RestoreAndApply | None:
        """Find how to restore a sink whose state may have expired rows; None if it cannot be, or need not be."""

    def take_shown(self, action: Rewrite, take: Take) -> list[Any]:
        """Take all rows that the state shows, or for a further output those of the sink; return what `take` returned, by task.

        Raises:
            SpecChangedError: the state has another spec.
        """

    def difference(self, action: Rewrite | Replace, take: Take) -> Difference:
        """Compare a sink with the rows that the state shows, or with the sink under another root; errors as `take_shown` and `taken`."""

    def taken(self, action: Replace) -> Snapshot | None:
        """Return the same table under another root; None if there is none.

        Raises:
            BackfillError: the root is gone.
        """

    def doomed(self, action: Erase) -> Doomed:
        """Return what selects the rows of erased keys in the table."""

    def missed(self) -> Iterator[tuple[Action, Work]]:
        """Yield the actions of earlier steps that the table lacks and can still perform, the oldest first."""


class Table(Protocol):
    """A table of a pipeline, as a step writes it."""

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it, 0 before the first; None without a table."""

    def last_step(self) -> int:
        """Return the last step that wrote it; 0 before the first, or without a table."""

    def can(self, action: Action) -> bool:
        """Return whether it can perform an action."""

    @property
    def path(self) -> str:
        """Its location."""

    def perform(self, action: Action, work: Work) -> None:
        """Perform the action of a step, once. A table that does not exist has nothing to clear, to restore or to alter."""


def cannot_perform(path: str, action: Action) -> EbbtideError:
    """Return the error of a table that cannot perform an action.

    Args:
        path: The table's location.
    """
    return ConfigError.of(
        f"The table at '{path}' cannot perform the action that a step decided for it.",
        got=f"the action '{action.do}'",
        next_step="Run the release of Ebbtide, or of the sink's package, that made the step.",
    )
