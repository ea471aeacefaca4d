"""A bucket as a file system of Arrow, which Arrow needs to read and write Parquet files there.

A folder is a prefix of names: it is never made, and exists while a file is in it.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.fs as pafs

from ebbtide.storage._bucket import Bucket, Found, bucket_of, parted

READ_AHEAD = 8 << 20
"""Bytes of a request when a file is read from front to back."""
READ_WHOLE = 1 << 20
"""Maximum bytes of a file that is read by one request: another request takes longer than a megabyte."""
IN_MEMORY = 64 << 20
"""Bytes of a file under way that are held in memory; a longer one is kept on disk until it is put."""


def file_system(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a location, and the path in it."""
    _, key = parted(location)
    bucket = bucket_of(location)
    handler = BucketHandler(bucket)
    return pafs.PyFileSystem(handler), key


class BucketHandler(pafs.FileSystemHandler):
    """The operations of a file system, made by calls to a bucket.

    Args:
        bucket: The bucket.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BucketHandler):
            return False
        return other.bucket is self.bucket

    def __hash__(self) -> int:
        return hash(self.bucket)

    def get_type_name(self) -> str:
        """Return the kind of file system."""
        return "object_store"

    def normalize_path(self, path: str) -> str:
        """Return a path unchanged."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Return the file or folder at each path."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the content of a folder."""
        folder = selector.base_dir
        if selector.recursive:
            files: Sequence[Found] = self.bucket.listed_deep(folder)
            folders: Sequence[str] = ()
        else:
            listed = self.bucket.listed(folder)
            files = listed["objects"]
            folders = listed["common_prefixes"]
        infos = [_file_info(found) for found in files]
        infos += [_folder_info(prefix) for prefix in folders]
        if infos or selector.allow_not_found or not folder:
            return infos
        location = self.bucket.uri(folder)
        raise FileNotFoundError(f"There is nothing in '{location}'")

    def _info(self, path: str) -> pafs.FileInfo:
        known = self.bucket.memory.known(path)
        if known is not None:
            size = len(known)
            return pafs.FileInfo(path, pafs.FileType.File, size=size)
        found = self.bucket.found(path) if path else None
        if found is not None:
            return _file_info(found)
        # A second request, only for a name without a file: a folder exists by its files.
        if self.bucket.has_below(path):
            return _folder_info(path)
        return pafs.FileInfo(path, pafs.FileType.NotFound)

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - Arrow's signature
        """Do nothing: a folder exists with its first file."""

    def delete_dir(self, path: str) -> None:
        """Delete all files in a folder."""
        files = self.bucket.listed_deep(path)
        keys = [found["path"] for found in files]
        self.bucket.delete(keys)

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self.bucket.delete([path])

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from front to back."""
        # Read ahead: each read of the raw file is a request.
        raw = ObjectFile(self.bucket, path, READ_AHEAD)
        buffered = io.BufferedReader(raw, READ_AHEAD)
        return pa.PythonFile(buffered, mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading in any order."""
        file = ObjectFile(self.bucket, path, READ_WHOLE)
        if file.is_whole:
            return pa.BufferReader(file.read())
        return pa.PythonFile(file, mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Open a file for writing; it is put when it is closed."""
        file = NewObject(self.bucket, path)
        return pa.PythonFile(file, mode="w")

    delete_dir_contents = delete_dir

    def delete_root_dir_contents(self) -> None:
        """Refuse to empty a bucket: no caller needs it."""
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        """Refuse: an object store cannot rename."""
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file within the bucket."""
        with self.open_input_stream(src) as read, self.open_output_stream(dest, None) as written:
            while chunk := read.read(READ_AHEAD):
                written.write(chunk)

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Refuse: an object store cannot append."""
        raise NotImplementedError


def _file_info(found: Found) -> pafs.FileInfo:
    return pafs.FileInfo(
        found["path"],
        pafs.FileType.File,
        size=found["size"],
        mtime=found["last_modified"],
    )


def _folder_info(path: str) -> pafs.FileInfo:
    return pafs.FileInfo(path, pafs.FileType.Directory)


class ObjectFile(io.RawIOBase):
    """A file of a bucket, read by ranges.

    Args:
        bucket: The bucket.
        key: Key of the file.
        first_bytes: Bytes that are read at once, by the request that finds its size.

    Raises:
        FileNotFoundError: the file does not exist.
    """

    def __init__(self, bucket: Bucket, key: str, first_bytes: int) -> None:
        self._bucket = bucket
        self._key = key
        self._first, self._size = bucket.opened(key, first_bytes)
        self._at = 0

    @property
    def is_whole(self) -> bool:
        """Return whether no further request is needed to read it."""
        return len(self._first) == self._size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the current position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, and return it. Makes no request."""
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
        """Read some bytes, by one request if they were not read at first."""
        length = max(self._size - self._at, 0)
        if size >= 0:
            length = min(size, length)
        data = self._range(self._at, length)
        self._at += len(data)
        return data

    def _range(self, start: int, length: int) -> bytes:
        end = start + length
        if length == 0:
            return b""
        if end <= len(self._first):
            return self._first[start:end]
        return self._bucket.read_range(self._key, start, length)

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer; return the number of bytes."""
        data = self.read(len(buffer))
        n_read = len(data)
        buffer[:n_read] = data
        return n_read


class NewObject(io.RawIOBase):
    """A file of a bucket under way: kept locally until it is closed, and then put whole.

    Args:
        bucket: The bucket.
        key: Key of the file.
    """

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        self._kept = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with this one

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the current position."""
        return self._kept.tell()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Append bytes to the local copy."""
        return self._kept.write(data)

    def close(self) -> None:
        """Put the file."""
        if self.closed:
            return
        # Closed first: a second `close`, after a put that failed, must not put again.
        super().close()
        with self._kept as kept:
            size = kept.seek(0, io.SEEK_END)
            if size > READ_WHOLE:
                self._bucket.put(self._key, kept)
                return
            kept.seek(0)
            data = kept.read()
            self._bucket.put_small(self._key, data)

    def __del__(self) -> None:
        """Discard a file that was not closed: its writer has failed."""
        self._kept.close()
