"""Delta tables, read and written without Spark.

A `Log` has the commits of a table, each a `Commit` of `Action`s; replayed to one version they are a `Snapshot`, which has the table's `DataFile`s,
reads their rows and judges its columns and features. Commits are put by `Puts`, on a version that was read. An `IndexCache` finds the rows of a
file by key, a `KeyIndex` for each, with `LocalCopies` on this host; `KeyBounds` say which files may hold a key.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.delta._altering import fills_of as fills_of
    from ebbtide.delta._commit import Puts as Puts
    from ebbtide.delta._copy_files import Copy as Copy
    from ebbtide.delta._copy_space import LocalCopies as LocalCopies
    from ebbtide.delta._data_file import DataFile as DataFile
    from ebbtide.delta._deleting import LostRows as LostRows
    from ebbtide.delta._erasing import Doomed as Doomed
    from ebbtide.delta._erasing import Found as Found
    from ebbtide.delta._joining import commit_joined as commit_joined
    from ebbtide.delta._joining import small_files as small_files
    from ebbtide.delta._joining import write_files as write_files
    from ebbtide.delta._key_bounds import KeyBounds as KeyBounds
    from ebbtide.delta._key_index import IndexCache as IndexCache
    from ebbtide.delta._key_lookup import KeyIndex as KeyIndex
    from ebbtide.delta._key_lookup import in_hash_order as in_hash_order
    from ebbtide.delta._log import Action as Action
    from ebbtide.delta._log import Commit as Commit
    from ebbtide.delta._log import Log as Log
    from ebbtide.delta._restoring import WholeFiles as WholeFiles
    from ebbtide.delta._snapshot import Snapshot as Snapshot
    from ebbtide.delta._table import commit_on as commit_on
    from ebbtide.delta._table import create_if_absent as create_if_absent
    from ebbtide.delta._table import emptied as emptied
    from ebbtide.delta._table import replacing as replacing
    from ebbtide.delta._table import with_properties as with_properties
else:
    __getattr__, __all__ = names_of(__name__)
