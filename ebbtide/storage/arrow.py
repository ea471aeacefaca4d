"""A bucket as a file system of Arrow's: what reads and writes Parquet and Arrow files takes such a one.

Folders are what names begin with: they need not be made, and are there while something is in them.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.fs as pafs

from ebbtide.storage.bucket import Bucket, Found, bucket_of, parted

READ_AHEAD = 8 << 20
"""Bytes of a request where a file is read from front to back."""
READ_WHOLE = 1 << 20
"""Bytes of a file up to which it is fetched by one request: a request costs more than a megabyte."""
IN_MEMORY = 64 << 20
"""Bytes of a file that is being written that are held in memory; a longer one is on disk until it is put."""


def file_system(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system that a location is in, and the path in it."""
    _, key = parted(location)
    bucket = bucket_of(location)
    handler = BucketHandler(bucket)
    return pafs.PyFileSystem(handler), key


class BucketHandler(pafs.FileSystemHandler):
    """What Arrow asks of a file system, answered by a bucket.

    Args:
        bucket: The bucket.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketHandler) and other.bucket is self.bucket

    def __hash__(self) -> int:
        return hash(self.bucket)

    def get_type_name(self) -> str:
        """Name the kind of file system."""
        return "object_store"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Return what is at each path."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return what is in a folder."""
        folder = selector.base_dir
        if selector.recursive:
            infos = [_file_info(found) for found in self.bucket.listed_deep(folder)]
        else:
            listed = self.bucket.listed(folder)
            infos = [_file_info(found) for found in listed["objects"]]
            infos += [_folder_info(prefix) for prefix in listed["common_prefixes"]]
        if infos or selector.allow_not_found or not folder:
            return infos
        raise FileNotFoundError(f"There is nothing in '{self.bucket.uri(folder)}'")

    def _info(self, path: str) -> pafs.FileInfo:
        found = self.bucket.found(path) if path else None
        if found is not None:
            return _file_info(found)
        if self.bucket.has_below(path):
            return _folder_info(path)
        return pafs.FileInfo(path, pafs.FileType.NotFound)

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - Arrow's signature
        """Do nothing: a folder comes with what is put in it."""

    def delete_dir(self, path: str) -> None:
        """Delete all that is in a folder."""
        keys = [found["path"] for found in self.bucket.listed_deep(path)]
        self.bucket.delete(keys)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self.bucket.delete([path])

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file to be read from front to back."""
        raw = ObjectFile(self.bucket, path)
        buffered = io.BufferedReader(raw, READ_AHEAD)
        return pa.PythonFile(buffered, mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file to be read in any order."""
        file = ObjectFile(self.bucket, path)
        if file.size() > READ_WHOLE:
            return pa.PythonFile(file, mode="r")
        data = file.read()
        return pa.BufferReader(data)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Open a file to be written; it is put when it is closed."""
        return pa.PythonFile(NewObject(self.bucket, path), mode="w")

    delete_dir_contents = delete_dir

    def delete_root_dir_contents(self) -> None:
        """Refuse to empty a bucket."""
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        """Refuse: no object store can."""
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        """Refuse: nothing of ours copies."""
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Refuse: no object store can."""
        raise NotImplementedError


def _file_info(found: Found) -> pafs.FileInfo:
    return pafs.FileInfo(found["path"], pafs.FileType.File, size=found["size"], mtime=found["last_modified"])


def _folder_info(path: str) -> pafs.FileInfo:
    return pafs.FileInfo(path, pafs.FileType.Directory)


class ObjectFile(io.RawIOBase):
    """A file of a bucket, read by ranges.

    Args:
        bucket: The bucket.
        key: The file's.

    Raises:
        FileNotFoundError: there is none.
    """

    def __init__(self, bucket: Bucket, key: str) -> None:
        found = bucket.found(key)
        if found is None:
            raise FileNotFoundError(f"There is no file '{bucket.uri(key)}'")
        self._bucket = bucket
        self._key = key
        self._size = found["size"]
        self._at = 0

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.IOBase`."""
        start = 0
        if whence == io.SEEK_CUR:
            start = self._at
        elif whence == io.SEEK_END:
            start = self._size
        self._at = start + offset
        return self._at

    def size(self) -> int:
        """Return the file's bytes."""
        return self._size

    def read(self, size: int = -1) -> bytes:
        """See `io.RawIOBase`."""
        left = max(self._size - self._at, 0)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        data = self._bucket.read_range(self._key, self._at, length)
        self._at += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """See `io.RawIOBase`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class NewObject(io.RawIOBase):
    """A file of a bucket that is being written: kept here until it is closed, and then put whole.

    Args:
        bucket: The bucket.
        key: The file's.
    """

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._kept = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with this one

    def writable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._kept.tell()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """See `io.RawIOBase`."""
        return self._kept.write(data)

    def close(self) -> None:
        """Put the file."""
        if self.closed:
            return
        super().close()
        with self._kept:
            self._bucket.put(self._key, self._kept)

    def __del__(self) -> None:
        """Forget what was not closed: its writer has failed."""
        self._kept.close()
