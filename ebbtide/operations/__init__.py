"""Operations on a pipeline's tables: maintenance, repair, rewind, migration, backfill, quarantine, adoption, clock, pause.

An `Operation` is planned or applied in a `Context`, and returns a `Report`; `operations` returns all of them, `maintain` runs one
maintenance job. `BUILT_IN`, `Listed` and `Heading` are what `ebbtide --help` shows, which loads no operation. `dropped` says
what a refresh drops, `delete_older_sites` deletes Data Docs from before an erasure.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.operations._built_in import BUILT_IN as BUILT_IN
    from ebbtide.operations._built_in import Heading as Heading
    from ebbtide.operations._built_in import Listed as Listed
    from ebbtide.operations._erase.data_docs import delete_older_sites as delete_older_sites
    from ebbtide.operations._operation import Context as Context
    from ebbtide.operations._operation import Operation as Operation
    from ebbtide.operations._operation import Report as Report
    from ebbtide.operations._places import dropped as dropped
    from ebbtide.operations._registry import maintain as maintain
    from ebbtide.operations._registry import operations as operations
else:
    __getattr__, __all__ = names_of(__name__)
