"""Delta tables, read and written without Spark.

A `Log` has the commits of a table, each a `Commit` of `Action`s; replayed to one version they are a `Snapshot`, which has the table's `DataFile`s,
reads their rows, judges its columns and features, and makes the actions of the next commit. A `Definition` has the columns and properties of a
table; `judged_properties` finds those of a user that are not written. A `Writer` creates tables and commits to them, on a version that was read. A `Feed` has the changes between two versions. An
`IndexCache` finds the rows of a file by key, a `KeyIndex` for each, with `LocalCopies` on this host; `KeyBounds` say which files may hold a
key. `Doomed` selects rows to erase from all files.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.delta._commit import Transaction as Transaction
    from ebbtide.delta._copy_space import LocalCopies as LocalCopies
    from ebbtide.delta._data_file import DataFile as DataFile
    from ebbtide.delta._data_file import LostRows as LostRows
    from ebbtide.delta._definition import Definition as Definition
    from ebbtide.delta._erasing import Doomed as Doomed
    from ebbtide.delta._erasing import FileWithout as FileWithout
    from ebbtide.delta._erasing import Held as Held
    from ebbtide.delta._feed import Feed as Feed
    from ebbtide.delta._key_bounds import KeyBounds as KeyBounds
    from ebbtide.delta._key_index import IndexCache as IndexCache
    from ebbtide.delta._key_lookup import KeyIndex as KeyIndex
    from ebbtide.delta._log import Action as Action
    from ebbtide.delta._log import Commit as Commit
    from ebbtide.delta._log import Log as Log
    from ebbtide.delta._properties import judged_properties as judged_properties
    from ebbtide.delta._snapshot import Snapshot as Snapshot
    from ebbtide.delta._vectors import positions_in as positions_in
    from ebbtide.delta._whole_files import WholeFiles as WholeFiles
    from ebbtide.delta._write_files import write_files as write_files
    from ebbtide.delta._writer import Writer as Writer
else:
    __getattr__, __all__ = names_of(__name__)
