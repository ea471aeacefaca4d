"""Locations: local paths and URIs of stores, and what can be read and written there."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from ebbtide.environment import with_variables
from ebbtide.errors import ConfigError, DamagedFileError, StoreRefusedError
from ebbtide.redaction import has_unseen, redacted
from ebbtide.storage._disk import failures_named, sync, sync_above, sync_together, with_folders
from ebbtide.storage._news import FolderNews

if TYPE_CHECKING:
    from ebbtide.storage._bucket import Bucket

LOCAL_SCHEME = "file"
OBJECT_STORES = ("s3", "s3a", "gs", "abfs", "abfss")
"""Schemes of object stores whose calls `ebbtide.storage._bucket` makes."""
SCHEMES = (LOCAL_SCHEME, *OBJECT_STORES, "hdfs")
"""Schemes that the URI of a location may have."""
MOST_BYTES_OF_NAME = 255
"""The longest name of a file or folder that file systems allow."""
READ_BYTES = 64 * 2**10
"""Bytes of a small file that are read at a time."""
COPIED_BYTES = 8 * 2**20
"""Bytes of a file that are held while it is copied."""
UNFINISHED = ".tmp"
"""End of the names of files that are being written; they begin with a dot, and are renamed when complete."""
PUT_TO_ASK = ".rights"
"""File of a folder in an object store whose put shows that puts are allowed."""
ALLOWED_FOR_S = 600.0
"""Seconds for which that counts: looks come every half a minute, and a store is paid for each put."""
MOST_ASKED = 10_000
"""Folders that this process remembers."""
_may_put_until_s: dict[str, float] = {}
_LOCAL = pafs.LocalFileSystem()
DAY_S = 86_400
HIDDEN = (".", "_")
"""Hidden files and folders have names that begin with one of them."""
_OF_DELTA_RS = re.compile(r".+#\d+")
"""`NAME#1`; a folder of this name is a partition's."""
PRIVATE = 0o700
"""Mode of folders that only their owner can read."""
_OF_A_GROUP = stat.S_ISGID | stat.S_IWGRP
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=[/\\])")
"""The scheme of a URI, or the drive of a Windows path."""


class FoundFile(NamedTuple):
    """A file that a listing found.

    Args:
        name: Its name below the folder listed, `inner/name`.
        size: Bytes.
        modified_ms: Time of its last write, epoch ms; None if the store does not have it.
    """

    name: str
    size: int
    modified_ms: int | None = None


@dataclass(frozen=True)
class Usage:
    """The size of a folder.

    Args:
        files: Number of files, with hidden ones.
        bytes: Their bytes.
    """

    files: int
    bytes: int


Digest = tuple[int, str]
"""The bytes of a file, and BLAKE2b of them: 16 bytes as hexadecimal digits."""


class Location(str):
    """A file or a folder: a local path, or the URI of a store, with what can be read and written there.

    It is a text, so that a setting, a spec or a stored fact can hold it; `Location(text)` makes it from any of them.

    Example:
        >>> Location("s3://bucket/shop/") / "orders" / "ledger"
        's3://bucket/shop/orders/ledger'
    """

    __slots__ = ()

    def __truediv__(self, name: str) -> Location:
        """Return the location of a name below this folder."""
        return Location(f"{self.rstrip('/')}/{name}")

    def refuse_unusable(self, field: str) -> None:
        """Refuse text that is neither a local path nor the bare URI of a store.

        Args:
            field: The setting that names it, such as `source.path`.

        Raises:
            ConfigError: it is empty, has another scheme, or is a URI with credentials, a query or a fragment.
        """
        problem = f"{field} is not a location."
        is_blank = not self.strip()
        if is_blank or has_unseen(self):
            raise ConfigError.of(
                problem,
                got=repr(self),
                allowed="a path or a URI, without control characters",
            )
        names = self.split("/")
        longest = max(len(name.encode()) for name in names)
        if longest > MOST_BYTES_OF_NAME:
            raise ConfigError.of(
                problem,
                got=f"a name of {longest} bytes",
                allowed=f"names of {MOST_BYTES_OF_NAME} bytes",
            )
        match = _SCHEME.match(self)
        if match is None:
            return
        scheme = match[1]
        rest = self[match.end() :]
        allowed = _misfit_of_uri(scheme, rest)
        if allowed is not None:
            raise ConfigError.of(problem, got=str(self), allowed=allowed)
        if _has_credentials(scheme, rest):
            raise ConfigError.of(
                f"{field} has credentials in it.",
                got=str(self),
                allowed="a bare URI",
                next_step="Give them to Spark and to the environment instead (docs/explanation/security.md).",
            )
        decoded = unquote(rest)
        has_parent = ".." in decoded.split("/")
        if "?" in rest or "#" in rest or has_parent:
            raise ConfigError.of(
                problem,
                got=str(self),
                allowed="a URI without '?', '#' and '..'",
            )

    def expanded(self, setting: str) -> str:
        """Return the location with the values of variables for `${NAME}`, and the home folder for `~` at its beginning.

        Args:
            setting: The setting that names it, in words that begin a sentence.

        Raises:
            ConfigError: a variable is not set.
        """
        written = with_variables(setting, str(self))
        is_at_home = written == "~" or written.startswith("~/")
        return str(Path(written).expanduser()) if is_at_home else written

    def resolved(self, base: Path | None = None) -> str:
        """Return a local path as an absolute one, against `base` if given; a URI of a store unchanged.

        Example:
            >>> Location("s3://bucket/shop").resolved(), Location("shop").resolved(Path("/data")), Location("file:///a%20b").resolved()
            ('s3://bucket/shop', '/data/shop', '/a b')
        """
        is_local_uri = self.startswith(f"{LOCAL_SCHEME}:///")
        if "://" in self and not is_local_uri:
            return str(self)
        path = str(self)
        if is_local_uri:
            encoded = self.removeprefix(f"{LOCAL_SCHEME}://")
            path = unquote(encoded)
        absolute = (base or Path.cwd()) / path
        return os.path.realpath(absolute)

    @property
    def is_local(self) -> bool:
        """True for a path on this machine."""
        return "://" not in self

    @property
    def is_in_object_store(self) -> bool:
        """True for the URI of an object store."""
        scheme, is_uri, _ = self.partition("://")
        return bool(is_uri) and scheme in OBJECT_STORES

    @property
    def needs_jvm(self) -> bool:
        """True if only Spark's JVM writes files here, as in HDFS."""
        return not (self.is_local or self.is_in_object_store)

    @property
    def is_compressed(self) -> bool:
        """True if `open_stream` decompresses this file, by the end of its name."""
        return self.endswith((".gz", ".bz2", ".lz4", ".zst"))

    def file_system(self) -> tuple[pafs.FileSystem, str]:
        """Return Arrow's file system that has this location, and the path in it."""
        if self.is_in_object_store:
            from ebbtide.storage import _arrow as arrow

            return arrow.file_system(self)
        if not self.is_local:
            return pafs.FileSystem.from_uri(self)  # type: ignore[no-any-return]
        return _LOCAL, _absolute(self)

    def _in_bucket(self) -> tuple[Bucket, str]:
        """Return the bucket that has this location, and its key there."""
        from ebbtide.storage._bucket import bucket_of, parted

        _, key = parted(self)
        return bucket_of(self), key

    def storage_options(self) -> dict[str, str]:
        """Return options for another client of this store, such as deltalake, that are not in the environment."""
        if not self.is_in_object_store:
            return {}
        from ebbtide.storage._bucket import client_options

        return client_options(self)

    def exists(self) -> bool:
        """Return whether there is a file or a folder."""
        return bool(self._type() != pafs.FileType.NotFound)

    def is_file(self) -> bool:
        """Return whether there is a file; one request to a store, where `exists` may need two."""
        if self.is_in_object_store:
            bucket, key = self._in_bucket()
            return bucket.found(key) is not None
        return bool(self._type() == pafs.FileType.File)

    def is_folder(self) -> bool:
        """Return whether there is a folder."""
        return bool(self._type() == pafs.FileType.Directory)

    def _type(self) -> pafs.FileType:
        fs, path = self.file_system()
        return fs.get_file_info(path).type

    def size(self) -> int | None:
        """Return the size of this file in bytes; None if it is absent."""
        fs, path = self.file_system()
        info = fs.get_file_info(path)
        if info.type != pafs.FileType.File:
            return None
        size: int = info.size
        return size

    def list_files(self) -> list[str]:
        """Return the names of the files directly in this folder, sorted, without hidden ones (`.`, `_`); none if it is absent."""
        return sorted(name for name in self.file_names() if name[0] not in HIDDEN)

    def entries(self) -> list[str]:
        """Return the names of what is directly in this folder, sorted, without hidden ones: files, and on a disk folders."""
        if not self.is_local:
            return self.list_files()
        try:
            return sorted(name for name in os.listdir(self) if name[0] not in HIDDEN)  # noqa: PTH208 - of thousands, without a Path of each
        except FileNotFoundError:
            return []

    def file_names(self) -> set[str]:
        """Return the names of all files directly in this folder, by one listing; none if it is absent."""
        return self._names_of(pafs.FileType.File)

    def file_sizes(self, names: Collection[str]) -> dict[str, int]:
        """Return the bytes of some files directly in this folder, by name; those that are absent are left out.

        On a disk each is asked for, since a folder has many more files; a store answers by one listing.
        """
        fs, path = self.file_system()
        if isinstance(fs, pafs.LocalFileSystem):
            return _local_sizes(path, names)
        selector = pafs.FileSelector(path, allow_not_found=True)
        infos = fs.get_file_info(selector)
        return {
            info.base_name: info.size for info in infos if info.base_name in names and info.type == pafs.FileType.File
        }

    @property
    def may_write(self) -> bool:
        """True if this user may make files in the folder, or make the folder.

        An object store is asked by a put of an empty file that is there from then on; what it has allowed counts for some minutes.
        """
        if self.is_in_object_store:
            return self._may_put()
        if not self.is_local:
            return True
        folder = Path(self)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)

    def _may_put(self) -> bool:
        """Return whether an object store takes files below this folder, with the credentials of this process."""
        if time.monotonic() < _may_put_until_s.get(self, 0.0):
            return True
        try:
            (self / PUT_TO_ASK).put_if_absent(b"")
        except StoreRefusedError:
            return False
        if len(_may_put_until_s) >= MOST_ASKED:
            _may_put_until_s.clear()
        _may_put_until_s[self] = time.monotonic() + ALLOWED_FOR_S
        return True

    @property
    def free_bytes(self) -> int | None:
        """Free bytes of the disk that the folder is on; None of an object store, or if it does not exist."""
        try:
            return shutil.disk_usage(self).free if self.is_local else None
        except OSError:
            return None

    def has_file_like(self, is_meant: Callable[[str], bool]) -> bool:
        """Return whether a name directly in this local folder is meant, without a listing of all of them."""
        try:
            with os.scandir(self) as entries:
                return any(is_meant(entry.name) for entry in entries)
        except FileNotFoundError:
            return False

    def subfolders(self) -> list[str]:
        """Return the names of the folders directly in this folder, sorted; none if it is absent."""
        return sorted(self._names_of(pafs.FileType.Directory))

    def _names_of(self, type_: pafs.FileType) -> set[str]:
        """Return the names directly in this folder that are of one type, by one listing."""
        fs, path = self.file_system()
        if isinstance(fs, pafs.LocalFileSystem):
            return _local_names(path, is_folder=type_ == pafs.FileType.Directory)
        selector = pafs.FileSelector(path, allow_not_found=True)
        infos = fs.get_file_info(selector)
        return {info.base_name for info in infos if info.type == type_}

    def walk(
        self,
        on_link: Callable[[str], None] | None = None,
        known: Collection[str] = (),
        on_folder: Callable[[str, int], None] | None = None,
    ) -> list[FoundFile]:
        """List the files in this folder and all folders below it, by name, without hidden ones (`.`, `_`) and their content.

        A symbolic link to a folder is not entered: links may lead in circles. The folder itself may be one.

        A local name that is not UTF-8 has lone surrogates for its bytes, as from `os.fsdecode`: no file can be opened by it.

        Args:
            on_link: Takes the name of each link to a folder. Default: none does.
            known: Names that are left out: of local files nothing is asked but the name.
            on_folder: Takes the path of each local folder, and when it was last changed, epoch ns. Default: none does.
        """
        fs, path = self.file_system()
        if isinstance(fs, pafs.LocalFileSystem):
            found = _walk_local(path, "", known, on_link or _ignore, on_folder or _ignore)
            return sorted(found, key=_name_of)
        folder = path.rstrip("/")
        files = []
        selector = pafs.FileSelector(path, recursive=True)
        infos = fs.get_file_info(selector)
        for info in infos:
            name = info.path[len(folder) :].lstrip("/")
            parts = name.split("/")
            is_hidden = any(map(_is_hidden, parts))
            if info.type != pafs.FileType.File or is_hidden or name in known:
                continue
            modified_ms = None
            if info.mtime_ns is not None:
                modified_ms = info.mtime_ns // 1_000_000
            files.append(FoundFile(name, info.size, modified_ms))
        return sorted(files, key=_name_of)

    def usage(self) -> Usage:
        """Return the size of this folder, with all folders below it; what symbolic links lead to is left out."""
        fs, path = self.file_system()
        if isinstance(fs, pafs.LocalFileSystem):
            return _local_usage(path)
        selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
        found = fs.get_file_info(selector)
        sizes = [info.size for info in found if info.type == pafs.FileType.File]
        n_bytes = sum(sizes)
        return Usage(len(sizes), n_bytes)

    def news(self) -> FolderNews | None:
        """Return what wakes a program that waits for files in this folder; None in a store, and where the system gives no news."""
        return FolderNews.of(self) if self.is_local else None

    def is_linked(self, name: str) -> bool:
        """Return whether a name below this folder is reached by a symbolic link.

        Args:
            name: Name below it, such as `inner/name`.
        """
        if not self.is_local:
            return False
        # Asked of each file that is read: only the names below the folder are looked at, not those that lead to it.
        parts = name.split("/")
        if ".." in parts:
            return True
        reached = accumulate(parts, lambda folder, part: f"{folder}/{part}", initial=str(self))
        return any(map(os.path.islink, islice(reached, 1, None)))

    def has_within(self, name: str) -> bool:
        """Return whether a name below this local folder, perhaps a link, is the folder itself or in it, once links are followed."""
        own = os.path.realpath(self)
        target = os.path.realpath(Location(own) / name)
        return target == own or target.startswith(f"{own}/")

    def read_bytes(self) -> bytes | None:
        """Return the bytes of this file; None if it is absent."""
        if self.is_in_object_store:
            bucket, key = self._in_bucket()
            return bucket.read(key)
        if self.is_local:
            try:
                return _local_bytes(self)
            except FileNotFoundError:
                return None
        fs, path = self.file_system()
        try:
            with fs.open_input_stream(path, compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def read_range(self, offset: int, size: int) -> bytes | None:
        """Return a range of this file's bytes, shorter at its end; None if it is absent."""
        fs, path = self.file_system()
        try:
            with fs.open_input_file(path) as file:
                file.seek(offset)
                return bytes(file.read(size))
        except FileNotFoundError:
            return None

    def open_stream(self) -> pa.NativeFile:
        """Open this file for reading, decompressed by the end of its name."""
        fs, path = self.file_system()
        return fs.open_input_stream(path)

    @contextmanager
    def open_range(self, begin: int, end: int | None) -> Iterator[pa.NativeFile]:
        """Open a range of this file's bytes for reading, as they are stored.

        Args:
            begin: The first byte.
            end: Behind the last byte; None: the file's end.
        """
        fs, path = self.file_system()
        with fs.open_input_file(path) as file:
            yield file.get_stream(begin, (file.size() if end is None else end) - begin)

    def write_bytes(self, data: bytes) -> None:
        """Write this file, replacing an existing one; folders are made as needed."""
        fs, path = self.file_system()
        folder, _, _ = path.rpartition("/")
        with failures_named(self):
            fs.create_dir(folder)
            with fs.open_output_stream(path, compression=None) as stream:
                stream.write(data)

    def replace_bytes(self, data: bytes) -> None:
        """Write this file atomically: a reader, also one after a power cut, sees the old file or the new one."""
        if not self.is_local:
            self.write_bytes(data)  # a put of a store is atomic
            return
        # Synced before it is renamed, and its folder after: without the first a cut may leave an empty file under the name.
        path = Path(self)
        unnamed = _unfinished_beside(path)
        with failures_named(self):
            is_first = _made_empty(path.parent)
        try:
            Location(unnamed).write_bytes(data)
            sync(unnamed)
            with failures_named(self):
                unnamed.replace(path)
        except BaseException:
            with suppress(OSError):
                unnamed.unlink()
            raise
        _sync_named(path, is_first=is_first)

    def put_if_absent(self, data: bytes, behind: Iterable[str] = ()) -> bool:
        """Write this file atomically if it is absent, on a local disk or in an object store; of several writers one succeeds.

        Its bytes are on disk before its name, and its name before this returns.

        Args:
            data: Its content, unique to this writer: where an answer may be lost, a file of the same bytes counts as this writer's.
            behind: Local files and folders that are on disk before its name, too: synced in one pass with its bytes.

        Raises:
            FileNotFoundError: one of these is gone.

        Returns:
            Whether this writer's file is there.
        """
        if self.is_in_object_store:
            bucket, key = self._in_bucket()
            return bucket.put_if_absent(key, data)
        with failures_named(self):
            return self._link_if_absent(data, behind)

    def _link_if_absent(self, data: bytes, behind: Iterable[str]) -> bool:
        path = Path(self)
        is_first = _made_empty(path.parent)
        unnamed = _unfinished_beside(path)
        try:
            with unnamed.open("xb") as file:
                file.write(data)
            sync_together([unnamed, *behind])
            # A link fails if the name exists, and the name appears with all bytes. A rename would replace an existing file.
            os.link(unnamed, path)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                unnamed.unlink()
        _sync_named(path, is_first=is_first)
        return True

    def refuse_overwriting(self) -> None:
        """Refuse an object store that ignores the condition of a put, and overwrites; a local disk is never refused.

        Raises:
            StoreUnsafeError: the store overwrites.
        """
        if self.is_in_object_store:
            bucket, key = self._in_bucket()
            bucket.refuse_overwriting(key)

    def make_private(self) -> None:
        """Make this local folder so that only its owner can read it, for any umask; an existing one is not changed."""
        path = Path(self)
        if path.exists():
            return
        # One by one: `mkdir(parents=True)` gives the folders in between the umask's mode, and only the last one its own.
        missing = [each for each in (path, *path.parents) if not each.exists()]
        for each in reversed(missing):
            with failures_named(each):
                each.mkdir(mode=PRIVATE, exist_ok=True)

    def make_home(self) -> None:
        """Make this folder, a pipeline's: private, or its group's too in a root that is writable by its group and has the set-group-ID bit."""
        path = Path(self)
        mode = path.parent.stat().st_mode if path.parent.is_dir() else 0
        if path.exists() or mode & _OF_A_GROUP != _OF_A_GROUP:
            self.make_private()
            return
        with failures_named(path):
            path.mkdir(mode=PRIVATE)
            path.chmod(stat.S_IMODE(mode) & ~stat.S_IRWXO)  # a mode of `mkdir` is cut by the umask

    def is_ours(self) -> bool:
        """Return whether this local folder belongs to this user, and only this user can write to it."""
        status = Path(self).stat()
        is_owner = status.st_uid == os.getuid()
        is_shared = status.st_mode & _WRITABLE_BY_OTHERS
        return is_owner and not is_shared

    def refuse_links(self, name: str) -> None:
        """Refuse a folder of this root that is a symbolic link, or has one directly in it: files would be written elsewhere.

        Args:
            name: Name of the folder.

        Raises:
            ConfigError: there is a link.
        """
        home = Path(self, name)
        if not self.is_local or not home.is_dir():
            return
        with failures_named(home):
            inside = list(home.iterdir())
        linked = [entry for entry in (home, *inside) if entry.is_symlink()]
        if linked:
            raise ConfigError.of(
                f"'{linked[0]}' is a symbolic link, which may lead out of the root '{self}'.",
                got=os.path.realpath(linked[0]),
                allowed="separate folders",
                next_step="Move the target of the link there, or mount it there.",
            )

    def copy_to(self, to: str) -> None:
        """Copy this file within its store, replacing an existing one; folders are made as needed."""
        from_fs, from_path = self.file_system()
        to_fs, to_path = Location(to).file_system()
        folder, _, _ = to_path.rpartition("/")
        with failures_named(to):
            to_fs.create_dir(folder)
            pafs.copy_files(from_path, to_path, from_fs, to_fs)

    def move_to(self, to: str) -> None:
        """Move this file, replacing an existing one: at each moment, and after a power cut, one of the places has it whole.

        Folders are made as needed. Between two stores, or disks, it is copied, and deleted then.
        """
        if not Location(to).is_local:
            self.copy_to(to)
            self.delete()
            return
        path = Path(to)
        with failures_named(to):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                if not self.is_local:
                    raise OSError(errno.EXDEV, "another store")  # noqa: TRY301 - as of another disk
                Path(self).replace(path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                unnamed = Location(_unfinished_beside(path))
                self.copy_to(unnamed)
                unnamed.sync()
                Path(unnamed).replace(path)
        sync_above(path)
        self.delete()
        if self.is_local:
            sync_above(self)

    def digest(self) -> Digest:
        """Read this file, and return its size and digest."""
        hashed = hashlib.blake2b(digest_size=16)
        n_bytes = 0
        with self.open_range(0, None) as stream:
            while piece := stream.read(COPIED_BYTES):
                hashed.update(piece)
                n_bytes += len(piece)
        return n_bytes, hashed.hexdigest()

    def copy_verified(self, to: str) -> Digest:
        """Copy this file, replacing an existing one, or give it a second name on its disk; return its content.

        Only for a file that never changes: two names are one file.

        Raises:
            FileNotFoundError: it is gone.
            DamagedFileError: the copy has other bytes.
        """
        found = self.digest()
        if self.is_local and Location(to).is_local and _is_shared(Path(self), Path(to)):
            return found
        self.copy_to(to)
        copied = Location(to).digest()
        if copied != found:
            raise DamagedFileError.of(
                f"The copy at '{to}' has other bytes than '{self}'.",
                got=f"{copied[0]:,} bytes, digest {copied[1]}",
                allowed=f"{found[0]:,} bytes, digest {found[1]}",
                next_step="Look at the disk or the store, then do it again.",
            )
        return found

    def sync(self, *, always: bool = False) -> None:
        """Write the bytes of this local file, or the names in this local folder, to disk (fsync).

        Args:
            always: Also if syncing is off.
        """
        sync(self, always=always)

    def sync_names(self) -> None:
        """Sync this local folder, whose names later steps rely on; nothing happens if it is not there.

        Only then do added and deleted files survive a power cut. An earlier process may have been killed before it did so.
        """
        if Path(self).is_dir():
            sync(self)

    def with_folders(self, files: Iterable[str], *, is_new: bool) -> list[str]:
        """Return local files below this folder, and the folders above them up to this one; none without a file.

        Args:
            files: Their paths.
            is_new: The name of this folder is perhaps not on disk: its parent, which has long been there, is one of them too.
        """
        return with_folders(Path(self).parent if is_new else Path(self), files)

    @staticmethod
    def sync_together(paths: Iterable[str]) -> None:
        """Sync local files and folders in one pass; see `put_if_absent`."""
        sync_together(paths)

    @contextmanager
    def scratch_folder(self, name: str) -> Iterator[str]:
        """Make a folder in this local one, and delete it at the end; `delete_unfinished` deletes that of a process that died.

        Args:
            name: Begins its name.
        """
        with TemporaryDirectory(dir=self, prefix=f".{name}.", suffix=UNFINISHED) as scratch:
            yield scratch

    def delete(self) -> None:
        """Delete this file, or this folder with its content, if it exists."""
        fs, path = self.file_system()
        type_ = fs.get_file_info(path).type
        with failures_named(self):
            if type_ == pafs.FileType.Directory:
                fs.delete_dir(path)
            elif type_ == pafs.FileType.File:
                fs.delete_file(path)

    def delete_unfinished(self, *, older_than_s: float = DAY_S) -> None:
        """Delete the files and folders in this local folder whose writer died before it renamed them. A store has no such files.

        Args:
            older_than_s: Seconds since they were last written; a younger one may still be written.
        """
        if not self.is_local:
            return
        written_before_s = time.time() - older_than_s
        for path in Path(self).glob("*"):
            if not _is_unfinished(path):
                continue
            with suppress(FileNotFoundError):  # its writer has just renamed it
                status = path.stat()
                if status.st_mtime <= written_before_s:
                    Location(path).delete()

    def free_aside(self) -> str:
        """Return a free name to move this local folder to, so that a new one can replace it.

        Raises:
            ConfigError: it is in a store, which cannot rename a folder at once.
        """
        if not self.is_local:
            raise ConfigError.of(
                f"The folder '{self}' has to be moved away first.",
                got="a folder of a store",
                allowed="a local folder, which is renamed",
                next_step="Move it with the store's own tools, then run this again.",
            )
        number = 1
        free = f"{self}.aside-1"
        while Location(free).exists():
            number += 1
            free = f"{self}.aside-{number}"
        return free

    def move_aside(self) -> str:
        """Rename this local folder; return its new name. See `free_aside`."""
        aside = self.free_aside()
        with failures_named(self):
            Path(self).rename(aside)
        return aside


def _absolute(location: str) -> str:
    """Return the absolute form of a local path."""
    # Asked for with each read of a file: most paths are in that form, which is seen quickly.
    if location.startswith("/") and os.path.normpath(location) == location:
        return location
    path = Path(location).absolute()
    return str(path)


def _misfit_of_uri(scheme: str, rest: str) -> str | None:
    """Return the allowed locations instead of a URI; None if it is a local path or a store's URI."""
    if scheme not in SCHEMES or not rest.startswith("//"):
        known = ", ".join(f"{name}://" for name in SCHEMES)
        return f"a local path, or a URI of {known}"
    if scheme == LOCAL_SCHEME and not rest.startswith("///"):
        return "file:/// and an absolute path"
    return None


def _has_credentials(scheme: str, rest: str) -> bool:
    """Return whether the rest of a URI, behind its scheme, has credentials in it."""
    # A secret may have a slash in it, so the whole rest is searched. Only HDFS has a port in its authority, which a slash ends.
    searched = f":{rest}"
    if scheme == "hdfs":
        authority, _, _ = rest.removeprefix("//").partition("/")
        searched = f"://{authority}"
    return redacted(searched) != searched


def _local_names(folder: str, *, is_folder: bool) -> set[str]:
    """Return the names of the files, or of the folders, directly in a local folder; none if it is absent."""
    # A listing says what is a link, a folder or a file: Arrow would ask the disk for the status of each file.
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if (entry.is_dir() if is_folder else entry.is_file())}
    except FileNotFoundError:
        return set()


def _local_sizes(folder: str, names: Iterable[str]) -> dict[str, int]:
    """Return the bytes of some files directly in a local folder; those that are absent are left out."""
    sizes = {}
    for name in names:
        with suppress(FileNotFoundError):
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - of thousands of files, without a Path of each
            if stat.S_ISREG(status.st_mode):
                sizes[name] = status.st_size
    return sizes


def _is_hidden(name: str) -> bool:
    return name.startswith(HIDDEN)


_name_of = attrgetter("name")


def _ignore(*_: object) -> None:
    """Take a name, and do nothing."""


def _local_bytes(path: str) -> bytes:
    """Return the bytes of a local file: logs are read a few commits at a time, and `open` asks twice for the status of each."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(partial(os.read, handle, READ_BYTES), b""))
    finally:
        os.close(handle)


def _made_empty(folder: Path) -> bool:
    """Make a folder if it is not there; return whether there is nothing in it."""
    try:
        with os.scandir(folder) as names:
            return next(names, None) is None
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
        return True


def _sync_named(path: Path, *, is_first: bool) -> None:
    """Sync the name of a file that is complete.

    Args:
        path: The file.
        is_first: Nothing was in its folder before: the folders above may be new too.
    """
    sync(path.parent)
    if is_first:
        sync_above(path.parent)


def _walk_local(
    folder: str,
    below: str,
    known: Collection[str],
    on_link: Callable[[str], None],
    on_folder: Callable[[str, int], None],
) -> Iterator[FoundFile]:
    """Yield the files of a local folder and of those below it; see `walk`.

    Args:
        folder: Path of the folder.
        below: Its name below the folder of the walk, with a slash at its end; empty: it is that folder.
        known, on_link, on_folder: See `walk`.
    """
    try:
        # Before its names: a file that comes meanwhile then shows as a change.
        on_folder(folder, Path(folder).stat().st_mtime_ns)
        with os.scandir(folder) as scanned:
            entries = [entry for entry in scanned if below + entry.name not in known and not _is_hidden(entry.name)]
    except FileNotFoundError:
        if not below:
            raise
        return  # deleted since the folder above it was read
    for entry in entries:
        name = below + entry.name
        if entry.is_file(follow_symlinks=False):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # deleted likewise
                continue
            yield FoundFile(name, status.st_size, status.st_mtime_ns // 1_000_000)
            continue
        is_link = entry.is_symlink()
        # A path has an answer also for a link that leads nowhere, or to itself.
        found = Path(entry.path) if is_link else entry
        if found.is_dir():
            if is_link:
                on_link(name)
            else:
                yield from _walk_local(entry.path, f"{name}/", known, on_link, on_folder)
        elif found.is_file():
            with suppress(FileNotFoundError):
                status = entry.stat()
                yield FoundFile(name, status.st_size, status.st_mtime_ns // 1_000_000)


def _local_usage(path: str) -> Usage:
    n_files = n_bytes = 0
    # `os.walk` enters no link to a folder: links may lead in circles.
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = Path(folder, name).lstat()
                if stat.S_ISREG(status.st_mode):
                    n_bytes += status.st_size
                    n_files += 1
    return Usage(n_files, n_bytes)


def _is_shared(path: Path, to: Path) -> bool:
    """Give a local file a second name; return False where its disk cannot: the file must be copied."""
    to.parent.mkdir(parents=True, exist_ok=True)
    unnamed = _unfinished_beside(to)
    try:
        os.link(path, unnamed)
        unnamed.replace(to)
    except OSError:
        with suppress(FileNotFoundError):
            unnamed.unlink()
        return False
    return True


def _unfinished_beside(path: Path) -> Path:
    """Return a unique name in a file's folder for writing the file until it is complete; see `_is_unfinished`."""
    unique = uuid.uuid4().hex
    return path.with_name(f".{path.name}.{unique}{UNFINISHED}")


def _is_unfinished(path: Path) -> bool:
    """Return whether a file or folder has the name of one that was not renamed yet: ours, or delta-rs' of a log's checkpoint."""
    name = path.name
    if name.startswith(".") and name.endswith(UNFINISHED):
        return True
    of_delta_rs = _OF_DELTA_RS.fullmatch(name)
    return of_delta_rs is not None and path.is_file()
