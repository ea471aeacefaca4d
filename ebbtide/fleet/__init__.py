"""Follows many pipelines in one process: each by a separate run; a few threads make the work of all of them in turn.

A `Fleet` yields what happens to its runs (`Ended`, `Failed`, `GoesOn`). `Fleet.once` has a run accept something only the first time it is begun.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.fleet._fleet import Ended as Ended
    from ebbtide.fleet._fleet import Failed as Failed
    from ebbtide.fleet._fleet import Fleet as Fleet
    from ebbtide.fleet._fleet import GoesOn as GoesOn
else:
    __getattr__, __all__ = names_of(__name__)
