"""The entries of state tables, as operators write them and tables store them.

`ENTRY_COLUMNS` are in every entry. An operator gets a `Step`, its only source of time, and returns `Reconciled`: entries to append,
each with the sink's action for its key (`SinkChange`). `live_entries` reads stored versions back.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.entries._entry import ENTRY_COLUMNS as ENTRY_COLUMNS
    from ebbtide.entries._entry import SINK_STEP as SINK_STEP
    from ebbtide.entries._entry import Reconciled as Reconciled
    from ebbtide.entries._entry import SinkChange as SinkChange
    from ebbtide.entries._entry import Step as Step
    from ebbtide.entries._entry import last_of_group as last_of_group
    from ebbtide.entries._entry import live_entries as live_entries
    from ebbtide.entries._entry import newest as newest
    from ebbtide.entries._entry import newest_versions as newest_versions
    from ebbtide.entries._lone_tombstones import count_lone as count_lone
else:
    __getattr__, __all__ = names_of(__name__)
