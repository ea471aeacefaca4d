"""Inspect: status and metrics of pipelines, for people and monitors. It changes nothing.

`status`, `Lag` and `UnreadTopics` read the tables and the source of one pipeline; `state` and `state_frame` show its
state, `QuarantineSummary` and `QuarantinedRecord` its quarantine. `WatchedRun` and `WatchedFleet` watch runs of this process, whose
metrics they have; `MetricsAtRest` are those of other pipelines. `without_personal` masks personal values, `page` shows all as HTML.
`fault_of_all_bad` gives the next step after a run.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.inspect._all_bad import fault_of_all_bad as fault_of_all_bad
    from ebbtide.inspect._backlog import Lag as Lag
    from ebbtide.inspect._backlog import UnreadTopics as UnreadTopics
    from ebbtide.inspect._measuring import MetricsAtRest as MetricsAtRest
    from ebbtide.inspect._page import page as page
    from ebbtide.inspect._personal import without_personal as without_personal
    from ebbtide.inspect._quarantine import QuarantinedRecord as QuarantinedRecord
    from ebbtide.inspect._quarantine import QuarantineSummary as QuarantineSummary
    from ebbtide.inspect._state import state as state
    from ebbtide.inspect._state import state_frame as state_frame
    from ebbtide.inspect._state_source import StateSource as StateSource
    from ebbtide.inspect._status import status as status
    from ebbtide.inspect._watched_fleet import WatchedFleet as WatchedFleet
    from ebbtide.inspect._watched_run import WatchedRun as WatchedRun
else:
    __getattr__, __all__ = names_of(__name__)
