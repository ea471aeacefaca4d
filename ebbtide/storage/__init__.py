"""Files on local disks and in object stores (S3, Google Cloud Storage, Azure).

| module | holds |
|---|---|
| `paths` | reads and writes at a location, local or not |
| `usage` | sizes of folders |
| `columnar` | Parquet and Arrow files |
| `disk` | syncs of local disks, and names of their failures |
| `bucket` | the calls to a bucket, through Rust's object_store, and their settings |
| `faults` | retries of calls to a store |
| `arrow` | a bucket as a file system of Arrow |

Endpoint, region and credentials come from the environment (docs/how-to/object-stores.md), never from a location.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.storage._columnar import Attached as Attached
    from ebbtide.storage._columnar import ParquetFile as ParquetFile
    from ebbtide.storage._columnar import footer_checksum as footer_checksum
    from ebbtide.storage._columnar import read_parquet as read_parquet
    from ebbtide.storage._disk import boot as boot
    from ebbtide.storage._disk import sync as sync
    from ebbtide.storage._disk import sync_names as sync_names
    from ebbtide.storage._paths import delete as delete
    from ebbtide.storage._paths import exists as exists
    from ebbtide.storage._paths import expanded as expanded
    from ebbtide.storage._paths import file_names as file_names
    from ebbtide.storage._paths import is_file as is_file
    from ebbtide.storage._paths import is_folder as is_folder
    from ebbtide.storage._paths import is_in_object_store as is_in_object_store
    from ebbtide.storage._paths import is_local as is_local
    from ebbtide.storage._paths import join as join
    from ebbtide.storage._paths import list_files as list_files
    from ebbtide.storage._paths import read_bytes as read_bytes
    from ebbtide.storage._paths import refuse_unusable as refuse_unusable
    from ebbtide.storage._paths import replace_bytes as replace_bytes
    from ebbtide.storage._paths import resolve as resolve
    from ebbtide.storage._paths import size_of as size_of
    from ebbtide.storage._paths import walk as walk
    from ebbtide.storage._rights import is_ours as is_ours
    from ebbtide.storage._rights import make_private as make_private
else:
    __getattr__, __all__ = names_of(__name__)
