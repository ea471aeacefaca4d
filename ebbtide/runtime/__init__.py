"""Runs a pipeline's steps, in this process or on Spark.

`run` and `refresh` run a pipeline, on an executor, with `Automatic` where the spec and the records say; an `Observer` gets a run's `RunBegun`, `Phase`,
`StepProgress` and `RunEnded`, and a `RunSummary` sums it up. A `Plan` has a pipeline's parts and tables, a `Stepper` makes steps under the
lease, `SourceSteps` those that read; a `Stager` writes a batch, which is `Staged` until it is decided. `Diagnosis` says which parts
do not fit together, and `AtRest` what the next run would meet. Operations ask `SinkHistory` and `SinkDifference` what a sink must show, `StateRewrite` and `Selecting` for
the state's files with other rows, `ErasureKey` and `purge` for the rows of erased keys. `idle_run` sees without a session that a run would
find nothing to do. A fleet gives each run its `InTurn`, and gets a `Look` at the source; SQL asks `view_source` for a view's `ViewLineage`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.runtime._at_rest import AtRest as AtRest
    from ebbtide.runtime._comparing import SinkDifference as SinkDifference
    from ebbtide.runtime._diagnosis import Diagnosis as Diagnosis
    from ebbtide.runtime._driver import refresh as refresh
    from ebbtide.runtime._driver import run as run
    from ebbtide.runtime._engines import Automatic as Automatic
    from ebbtide.runtime._erasing import ErasureKey as ErasureKey
    from ebbtide.runtime._fold import StateRewrite as StateRewrite
    from ebbtide.runtime._guests import ViewLineage as ViewLineage
    from ebbtide.runtime._guests import view_source as view_source
    from ebbtide.runtime._idle import idle_run as idle_run
    from ebbtide.runtime._observers import Look as Look
    from ebbtide.runtime._observers import Observer as Observer
    from ebbtide.runtime._observers import RunBegun as RunBegun
    from ebbtide.runtime._observers import RunEnded as RunEnded
    from ebbtide.runtime._plan import Plan as Plan
    from ebbtide.runtime._progress import Phase as Phase
    from ebbtide.runtime._progress import RunSummary as RunSummary
    from ebbtide.runtime._progress import StepProgress as StepProgress
    from ebbtide.runtime._purging import purge as purge
    from ebbtide.runtime._reading import SourceSteps as SourceSteps
    from ebbtide.runtime._selection import Selecting as Selecting
    from ebbtide.runtime._stage import Staged as Staged
    from ebbtide.runtime._step import Stepper as Stepper
    from ebbtide.runtime._timing import InTurn as InTurn
    from ebbtide.runtime._timing import system_clock as system_clock
    from ebbtide.runtime._way_back import SinkHistory as SinkHistory
    from ebbtide.runtime._workers.staging import Stager as Stager
else:
    __getattr__, __all__ = names_of(__name__)
