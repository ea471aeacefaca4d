"""Locations: local paths and object-store URIs behind one small set of reads."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq


def _open(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a location and the path in it; Hadoop's `s3a` is Arrow's `s3`."""
    return pafs.FileSystem.from_uri(location.replace("s3a://", "s3://", 1))  # type: ignore[no-any-return]


def resolve(location: str, base: Path | None = None) -> str:
    """Make a local path absolute, against `base` if given; leave a URI as it is.

    Example:
        >>> resolve("s3://bucket/shop"), resolve("shop", Path("/data"))
        ('s3://bucket/shop', '/data/shop')
    """
    return location if "://" in location else str(((base or Path.cwd()) / location).resolve())


def join(location: str, *names: str) -> str:
    """Append names to a location."""
    return "/".join([location.rstrip("/"), *names])


def list_files(location: str) -> list[str]:
    """Return the names of the files directly in a folder, sorted; hidden ones (`.`, `_`) left out, none if it is absent."""
    fs, path = _open(location)
    found = fs.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return sorted(f.base_name for f in found if f.type == pafs.FileType.File and not f.base_name.startswith((".", "_")))


def exists(location: str) -> bool:
    """Tell whether a file or folder is there."""
    fs, path = _open(location)
    return bool(fs.get_file_info(path).type != pafs.FileType.NotFound)


def read_bytes(location: str) -> bytes | None:
    """Return a file's bytes; None if it is absent."""
    if not exists(location):
        return None
    fs, path = _open(location)
    with fs.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def read_parquet(location: str, columns: list[str]) -> pa.Table:
    """Read some columns of a Parquet file."""
    fs, path = _open(location)
    return pq.read_table(path, columns=columns, filesystem=fs, partitioning=None)


class ParquetFile:
    """A Parquet file that is written batch by batch and made with the first; a context manager.

    Args:
        location: Where it goes; folders are made as needed.
        schema: Its columns.
    """

    def __init__(self, location: str, schema: pa.Schema) -> None:
        self.location, self.schema = location, schema
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        if self._writer is None:
            fs, path = _open(self.location)
            fs.create_dir(path.rpartition("/")[0])
            self._writer = pq.ParquetWriter(path, self.schema, filesystem=fs, compression="lz4")
        self._writer.write_batch(batch)


def delete(location: str) -> None:
    """Delete a folder and all in it, if it is there."""
    fs, path = _open(location)
    if fs.get_file_info(path).type == pafs.FileType.Directory:
        fs.delete_dir(path)


def open_stream(location: str) -> pa.NativeFile:
    """Open a file for reading, decompressed as its name says."""
    fs, path = _open(location)
    return fs.open_input_stream(path)
