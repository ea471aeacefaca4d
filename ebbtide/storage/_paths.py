"""Locations: local paths and URIs of stores, behind one set of functions to read and write files."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from ebbtide.environment import with_variables
from ebbtide.errors import ConfigError
from ebbtide.redaction import has_unseen, redacted
from ebbtide.storage._disk import failures_named, sync, sync_above

LOCAL_SCHEME = "file"
OBJECT_STORES = ("s3", "s3a", "gs", "abfs", "abfss")
"""Schemes of object stores whose calls `ebbtide.storage._bucket` makes."""
SCHEMES = (LOCAL_SCHEME, *OBJECT_STORES, "hdfs")
"""Schemes that the URI of a location may have."""
MOST_BYTES_OF_NAME = 255
"""The longest name of a file or folder that file systems allow."""
UNFINISHED = ".tmp"
"""End of the names of files that are being written; they begin with a dot, and are renamed when complete."""
_LOCAL = pafs.LocalFileSystem()
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=[/\\])")
"""The scheme of a URI, or the drive of a Windows path."""


def file_system(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a location and the path in it."""
    if is_in_object_store(location):
        from ebbtide.storage import _arrow as arrow

        return arrow.file_system(location)
    if not is_local(location):
        return pafs.FileSystem.from_uri(location)  # type: ignore[no-any-return]
    return _LOCAL, _absolute(location)


def _absolute(location: str) -> str:
    """Return the absolute form of a local path."""
    # Asked for with each read of a file: most paths are in that form, which is seen quickly.
    if location.startswith("/") and os.path.normpath(location) == location:
        return location
    path = Path(location).absolute()
    return str(path)


def is_in_object_store(location: str) -> bool:
    """Return whether a location is in an object store."""
    scheme, is_uri, _ = location.partition("://")
    return bool(is_uri) and scheme in OBJECT_STORES


def needs_jvm(location: str) -> bool:
    """Return whether files there are written by Spark's JVM alone, as in HDFS."""
    return not (is_local(location) or is_in_object_store(location))


def storage_options(location: str) -> dict[str, str]:
    """Return the options that another client of a location's store, such as deltalake, needs beside the environment."""
    if not is_in_object_store(location):
        return {}
    from ebbtide.storage._bucket import client_options

    return client_options(location)


def refuse_unusable(field: str, location: str) -> None:
    """Refuse a location that is neither a local path nor the bare URI of a store.

    Args:
        field: The setting that names it, such as `source.path`.
        location: A path or a URI.

    Raises:
        ConfigError: it is empty, has another scheme, or is a URI with credentials, a query or a fragment.
    """
    problem = f"{field} is not a location."
    is_blank = not location.strip()
    if is_blank or has_unseen(location):
        raise ConfigError.of(
            problem,
            got=repr(location),
            allowed="a path or a URI, without control characters",
        )
    names = location.split("/")
    longest = max(len(name.encode()) for name in names)
    if longest > MOST_BYTES_OF_NAME:
        raise ConfigError.of(
            problem,
            got=f"a name of {longest} bytes",
            allowed=f"names of {MOST_BYTES_OF_NAME} bytes",
        )
    match = _SCHEME.match(location)
    if match is None:
        return
    scheme = match[1]
    rest = location[match.end() :]
    allowed = _misfit_of_uri(scheme, rest)
    if allowed is not None:
        raise ConfigError.of(problem, got=location, allowed=allowed)
    if _has_credentials(scheme, rest):
        raise ConfigError.of(
            f"{field} has credentials in it.",
            got=location,
            allowed="a bare URI",
            next_step="Give them to Spark and to the environment instead (docs/explanation/security.md).",
        )
    decoded = unquote(rest)
    has_parent = ".." in decoded.split("/")
    if "?" in rest or "#" in rest or has_parent:
        raise ConfigError.of(
            problem,
            got=location,
            allowed="a URI without '?', '#' and '..'",
        )


def _misfit_of_uri(scheme: str, rest: str) -> str | None:
    """Return what is allowed in place of a URI; None if it is one of a local path or of a store."""
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


def expanded(setting: str, location: str) -> str:
    """Return a location with the values of variables for `${NAME}`, and the home folder for `~` at its beginning.

    Args:
        setting: The setting that names it, in words that begin a sentence.
        location: A path or a URI.

    Raises:
        ConfigError: a variable is not set.
    """
    written = with_variables(setting, location)
    is_at_home = written == "~" or written.startswith("~/")
    return str(Path(written).expanduser()) if is_at_home else written


def resolve(location: str, base: Path | None = None) -> str:
    """Make a local path absolute, against `base` if given; leave a URI of a store as it is.

    Example:
        >>> resolve("s3://bucket/shop"), resolve("shop", Path("/data")), resolve("file:///a%20b")
        ('s3://bucket/shop', '/data/shop', '/a b')
    """
    is_local_uri = location.startswith(f"{LOCAL_SCHEME}:///")
    if "://" in location and not is_local_uri:
        return location
    path = location
    if is_local_uri:
        encoded = location.removeprefix(f"{LOCAL_SCHEME}://")
        path = unquote(encoded)
    absolute = (base or Path.cwd()) / path
    return os.path.realpath(absolute)


def is_local(location: str) -> bool:
    """Return whether a location is a path on this machine."""
    return "://" not in location


def is_linked(folder: str, name: str) -> bool:
    """Return whether a name below a folder is reached by a symbolic link.

    Args:
        folder: Location of the folder, which may be a link itself.
        name: Name below it, such as `inner/name`.
    """
    if not is_local(folder):
        return False
    own = join(os.path.realpath(folder), name)
    return os.path.realpath(own) != own


def leads_within(folder: str, name: str) -> bool:
    """Return whether a name below a local folder, perhaps a link, is that folder or in it, once links are followed."""
    own = os.path.realpath(folder)
    target = os.path.realpath(join(own, name))
    return target == own or target.startswith(f"{own}/")


def join(location: str, *names: str) -> str:
    """Append names to a location."""
    return "/".join([location.rstrip("/"), *names])


def list_files(location: str) -> list[str]:
    """Return the names of the files directly in a folder, sorted, without hidden ones (`.`, `_`); none if it is absent."""
    names = file_names(location)
    shown = [name for name in names if not _is_hidden(name)]
    return sorted(shown)


def file_names(location: str) -> set[str]:
    """Return the names of all files directly in a folder, by one listing; none if it is absent."""
    fs, path = file_system(location)
    selector = pafs.FileSelector(path, allow_not_found=True)
    infos = fs.get_file_info(selector)
    files = [info for info in infos if info.type == pafs.FileType.File]
    return {info.base_name for info in files}


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


@dataclass(frozen=True)
class FoundFile:
    """A file that a listing found.

    Args:
        name: Its name below the folder listed, `inner/name`.
        size: Bytes.
        modified_ms: Time of its last write, epoch ms; None if the store does not have it.
    """

    name: str
    size: int
    modified_ms: int | None = None


def walk(location: str, on_link: Callable[[str], None] | None = None) -> list[FoundFile]:
    """List the files in a folder and all folders below it, by name, without hidden ones (`.`, `_`) and their content.

    A symbolic link to a folder is not entered: links may lead in circles. The folder itself may be one.

    A local name that is not UTF-8 has lone surrogates for its bytes, as from `os.fsdecode`: no file can be opened by it.

    Args:
        location: Location of the folder.
        on_link: Takes the name of each link to a folder. Default: none does.
    """
    fs, path = file_system(location)
    if isinstance(fs, pafs.LocalFileSystem):
        found = _walk_local(path, "", on_link or _ignore)
        return sorted(found, key=lambda file: file.name)
    folder = path.rstrip("/")
    files = []
    selector = pafs.FileSelector(path, recursive=True)
    infos = fs.get_file_info(selector)
    for info in infos:
        name = info.path[len(folder) :].lstrip("/")
        parts = name.split("/")
        is_hidden = any(map(_is_hidden, parts))
        if info.type != pafs.FileType.File or is_hidden:
            continue
        modified_ms = None
        if info.mtime_ns is not None:
            modified_ms = info.mtime_ns // 1_000_000
        files.append(FoundFile(name, info.size, modified_ms))
    return sorted(files, key=lambda file: file.name)


def _ignore(_: str) -> None:
    """Take a name, and do nothing."""


def _walk_local(folder: str, below: str, on_link: Callable[[str], None]) -> Iterator[FoundFile]:
    """Yield the files of a local folder and of those below it; see `walk`.

    Args:
        folder: Path of the folder.
        below: Its name below the folder of the walk, with a slash at its end; empty: it is that folder.
        on_link: Takes the name of each link to a folder.
    """
    try:
        with os.scandir(folder) as scanned:
            entries = [entry for entry in scanned if not _is_hidden(entry.name)]
    except FileNotFoundError:
        if not below:
            raise
        return  # deleted since the folder above it was read
    for entry in entries:
        name = f"{below}{entry.name}"
        is_link = entry.is_symlink()
        # A path has an answer also for a link that leads nowhere, or to itself.
        found = Path(entry.path) if is_link else entry
        if found.is_dir():
            if is_link:
                on_link(name)
            else:
                yield from _walk_local(entry.path, f"{name}/", on_link)
        elif found.is_file():
            with suppress(FileNotFoundError):  # deleted likewise
                status = entry.stat()
                yield FoundFile(name, status.st_size, status.st_mtime_ns // 1_000_000)


def has_surrogate(name: str) -> bool:
    """Return whether a name has bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False


def size_of(location: str) -> int | None:
    """Return the size of a file in bytes; None if it is absent."""
    fs, path = file_system(location)
    info = fs.get_file_info(path)
    if info.type != pafs.FileType.File:
        return None
    size: int = info.size
    return size


def is_folder(location: str) -> bool:
    """Return whether a folder exists."""
    return bool(_type_of(location) == pafs.FileType.Directory)


def is_file(location: str) -> bool:
    """Return whether a file exists; one request to a store, where `exists` may need two."""
    if is_in_object_store(location):
        from ebbtide.storage._bucket import bucket_of, parted

        _, key = parted(location)
        return bucket_of(location).found(key) is not None
    return bool(_type_of(location) == pafs.FileType.File)


def exists(location: str) -> bool:
    """Return whether a file or folder exists."""
    return bool(_type_of(location) != pafs.FileType.NotFound)


def _type_of(location: str) -> pafs.FileType:
    fs, path = file_system(location)
    return fs.get_file_info(path).type


def read_bytes(location: str) -> bytes | None:
    """Return a file's bytes; None if it is absent."""
    if is_in_object_store(location):
        from ebbtide.storage._bucket import bucket_of, parted

        _, key = parted(location)
        return bucket_of(location).read(key)
    fs, path = file_system(location)
    try:
        with fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def read_range(location: str, offset: int, size: int) -> bytes | None:
    """Return a range of a file's bytes, shorter at its end; None if it is absent."""
    fs, path = file_system(location)
    try:
        with fs.open_input_file(path) as file:
            file.seek(offset)
            return bytes(file.read(size))
    except FileNotFoundError:
        return None


def write_bytes(location: str, data: bytes) -> None:
    """Write a file, replacing an existing one; folders are made as needed."""
    fs, path = file_system(location)
    folder, _, _ = path.rpartition("/")
    with failures_named(location):
        fs.create_dir(folder)
        with fs.open_output_stream(path, compression=None) as stream:
            stream.write(data)


def copy_file(location: str, to: str) -> None:
    """Copy a file within a store, replacing an existing one; folders are made as needed."""
    from_fs, from_path = file_system(location)
    to_fs, to_path = file_system(to)
    folder, _, _ = to_path.rpartition("/")
    with failures_named(to):
        to_fs.create_dir(folder)
        pafs.copy_files(from_path, to_path, from_fs, to_fs)


def replace_bytes(location: str, data: bytes) -> None:
    """Write a file atomically: a reader, also one after a power cut, sees the old file or the new one."""
    if not is_local(location):
        write_bytes(location, data)  # a put of a store is atomic
        return
    # Synced before it is renamed, and its folder after: without the first a cut may leave an empty file under the name.
    path = Path(location)
    unique = uuid.uuid4().hex
    unnamed = path.with_name(f".{path.name}.{unique}{UNFINISHED}")
    try:
        write_bytes(str(unnamed), data)
        sync(unnamed)
        with failures_named(location):
            unnamed.replace(path)
    except BaseException:
        with suppress(OSError):
            unnamed.unlink()
        raise
    sync_above(location)


def delete(location: str) -> None:
    """Delete a file, or a folder with its content, if it exists."""
    fs, path = file_system(location)
    type_ = fs.get_file_info(path).type
    with failures_named(location):
        if type_ == pafs.FileType.Directory:
            fs.delete_dir(path)
        elif type_ == pafs.FileType.File:
            fs.delete_file(path)


def is_compressed(location: str) -> bool:
    """Return whether `open_stream` decompresses a file, by its name."""
    return location.endswith((".gz", ".bz2", ".lz4", ".zst"))


def open_stream(location: str) -> pa.NativeFile:
    """Open a file for reading, decompressed by the end of its name."""
    fs, path = file_system(location)
    return fs.open_input_stream(path)
