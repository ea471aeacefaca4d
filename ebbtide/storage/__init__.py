"""Files on local disks and in object stores (S3, Google Cloud Storage, Azure).

- `Location`: a path or a URI, with its reads and writes. It returns `FoundFile` and `Usage`.
- `ParquetFile`, `ArrowFile`: columnar files. The checksum of a footer shows damage,
  `Attached` are bytes that a file has in addition to its rows.
- `Together`: the requests of one step to an object store, made side by side; `Together.at_once` makes a few independent ones so.

Endpoint, region and credentials come from the environment (docs/how-to/object-stores.md), never from a location.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.storage._columnar import ArrowFile as ArrowFile
    from ebbtide.storage._columnar import Attached as Attached
    from ebbtide.storage._columnar import ParquetFile as ParquetFile
    from ebbtide.storage._location import FoundFile as FoundFile
    from ebbtide.storage._location import Location as Location
    from ebbtide.storage._location import Usage as Usage
    from ebbtide.storage._together import Together as Together
else:
    __getattr__, __all__ = names_of(__name__)
