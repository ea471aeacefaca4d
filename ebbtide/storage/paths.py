"""Locations: local paths and object-store URIs behind one small set of reads."""

from __future__ import annotations

import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from ebbtide.errors import ConfigError
from ebbtide.redaction import has_unseen, redacted
from ebbtide.storage.disk import failures_named, sync, sync_above

LOCAL_SCHEME = "file"
OBJECT_STORES = ("s3", "s3a", "gs", "abfs", "abfss")
"""Schemes of what `ebbtide.storage` serves."""
SCHEMES = (LOCAL_SCHEME, *OBJECT_STORES, "hdfs")
"""Of the URIs that a location may be."""
MOST_BYTES_OF_NAME = 255
"""Of a file or a folder: what file systems take."""
UNFINISHED = ".tmp"
"""How the names of files end that are being written, and get their own name once they are whole; they begin with a dot."""
DAY_S = 86_400
PRIVATE = 0o700
"""Mode of the folders that no other user may look into."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=[/\\])")
"""Of a URI, or the drive of a Windows path."""
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def file_system(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a location and the path in it."""
    if is_in_object_store(location):
        from ebbtide.storage import arrow

        return arrow.file_system(location)
    if is_local(location):
        return pafs.LocalFileSystem(), str(Path(location).absolute())
    return pafs.FileSystem.from_uri(location)  # type: ignore[no-any-return]


def is_in_object_store(location: str) -> bool:
    """Return whether a location is in a store that `ebbtide.storage` serves."""
    scheme, is_uri, _ = location.partition("://")
    return bool(is_uri) and scheme in OBJECT_STORES


def storage_options(location: str) -> dict[str, str]:
    """Return what another client of a location's store, deltalake for instance, needs to know beside the environment."""
    if not is_in_object_store(location):
        return {}
    from ebbtide.storage.bucket import client_options

    return client_options(location)


def refuse_unusable(field: str, location: str) -> None:
    """Refuse a location that is neither a local path nor the bare URI of a store.

    Args:
        field: Where it was given, `source.path` for instance.
        location: A path or a URI.

    Raises:
        ConfigError: it is empty, of another scheme, or a URI with more than a place in a store.
    """
    what = f"{field} is not a location."
    if not location.strip() or has_unseen(location):
        raise ConfigError.of(what, got=repr(location), allowed="a path or a URI, without control characters")
    longest = max(len(part.encode()) for part in location.split("/"))
    if longest > MOST_BYTES_OF_NAME:
        raise ConfigError.of(what, got=f"a name of {longest} bytes", allowed=f"names of {MOST_BYTES_OF_NAME} bytes")
    scheme = _SCHEME.match(location)
    if scheme is None:
        return
    name = scheme[1]
    place = location[scheme.end() :]
    if name not in SCHEMES or not place.startswith("//"):
        allowed = ", ".join(f"{each}://" for each in SCHEMES)
        raise ConfigError.of(what, got=location, allowed=f"a local path, or a URI of {allowed}")
    if name == LOCAL_SCHEME and not place.startswith("///"):
        raise ConfigError.of(what, got=location, allowed="file:/// and an absolute path")
    authority = place.removeprefix("//").partition("/")[0]
    # A secret may have a slash in it. Only the authority of HDFS has a port: there a slash ends it.
    looked_at = f"//{authority}" if name == "hdfs" else place
    if redacted(f":{looked_at}") != f":{looked_at}":
        raise ConfigError.of(
            f"{field} has credentials in it.",
            got=location,
            allowed="a bare URI",
            next_step="Give them to Spark and to the environment instead (docs/explanation/security.md).",
        )
    decoded = unquote(place)
    if "?" in place or "#" in place or ".." in decoded.split("/"):
        raise ConfigError.of(what, got=location, allowed="a URI without '?', '#' and '..'")


def resolve(location: str, base: Path | None = None) -> str:
    """Make a local path absolute, against `base` if given; leave a URI of a store as it is.

    Example:
        >>> resolve("s3://bucket/shop"), resolve("shop", Path("/data")), resolve("file:///a%20b")
        ('s3://bucket/shop', '/data/shop', '/a b')
    """
    is_local_uri = location.startswith(f"{LOCAL_SCHEME}:///")
    if "://" in location and not is_local_uri:
        return location
    path = unquote(location.removeprefix(f"{LOCAL_SCHEME}://")) if is_local_uri else location
    absolute = (base or Path.cwd()) / path
    return os.path.realpath(absolute)


def is_local(location: str) -> bool:
    """Return whether a location is a path on this machine."""
    return "://" not in location


def is_linked(folder: str, name: str) -> bool:
    """Return whether a name below a folder is reached by a symbolic link.

    Args:
        folder: Its location; that it is a link itself says nothing.
        name: Below it, `inner/name`.
    """
    if not is_local(folder):
        return False
    own = join(os.path.realpath(folder), name)
    return os.path.realpath(own) != own


def refuse_links(root: str, name: str) -> None:
    """Refuse a folder of a root that is a symbolic link, or has one directly in it: what is written there would lie elsewhere.

    Args:
        root: Location of the root.
        name: The folder's.

    Raises:
        ConfigError: there is one.
    """
    home = Path(root, name)
    if not is_local(root) or not home.is_dir():
        return
    linked = [entry for entry in (home, *home.iterdir()) if entry.is_symlink()]
    if linked:
        raise ConfigError.of(
            f"'{linked[0]}' is a symbolic link, which may lead out of the root '{root}'.",
            got=os.path.realpath(linked[0]),
            allowed="folders of their own",
            next_step="Move there what the link leads to, or mount it there.",
        )


def make_private(folder: str) -> None:
    """Make a local folder that no other user may look into, whatever the umask; one that is there stays as it is."""
    if not is_local(folder):
        return
    path = Path(folder)
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        with failures_named(each):
            each.mkdir(mode=PRIVATE, exist_ok=True)


def is_ours(folder: Path) -> bool:
    """Return whether a folder belongs to this user, and no other user may write to it."""
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def join(location: str, *names: str) -> str:
    """Append names to a location."""
    return "/".join([location.rstrip("/"), *names])


def list_files(location: str) -> list[str]:
    """Return the names of the files directly in a folder, sorted; hidden ones (`.`, `_`) left out, none if it is absent."""
    return sorted(name for name in file_names(location) if not _is_hidden(name))


def file_names(location: str) -> set[str]:
    """Return the names of all files directly in a folder, by one listing; none if it is absent."""
    fs, path = file_system(location)
    selector = pafs.FileSelector(path, allow_not_found=True)
    infos = fs.get_file_info(selector)
    return {info.base_name for info in infos if info.type == pafs.FileType.File}


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


@dataclass(frozen=True)
class FoundFile:
    """A file that a listing found.

    Args:
        name: Its name below the folder listed, `inner/name`.
        size: Bytes.
        modified_ms: When it was last written, epoch ms; None where the store does not say.
    """

    name: str
    size: int
    modified_ms: int | None = None


def walk(location: str) -> list[FoundFile]:
    """List the files in a folder and all folders below it, by name; hidden ones (`.`, `_`) and what is in them left out.

    A local name that is not UTF-8 has lone surrogates for its bytes, as `os.fsdecode` gives them: nothing can open it by that.
    """
    fs, path = file_system(location)
    folder = path.rstrip("/")
    files = []
    all_decode = True
    infos = fs.get_file_info(pafs.FileSelector(path, recursive=True))
    for info in infos:
        try:
            name = info.path[len(folder) :].lstrip("/")
        except UnicodeDecodeError:
            all_decode = False
            continue
        is_hidden = any(map(_is_hidden, name.split("/")))
        if info.type != pafs.FileType.File or is_hidden:
            continue
        modified_ms = None if info.mtime_ns is None else info.mtime_ns // 1_000_000
        files.append(FoundFile(name, info.size, modified_ms))
    if not all_decode:
        files += _undecodable(Path(folder))
    return sorted(files, key=lambda file: file.name)


def _undecodable(folder: Path) -> Iterator[FoundFile]:
    """Yield the files whose names Arrow cannot give."""
    for parent, _, names in os.walk(folder):
        for own in names:
            name = Path(parent, own).relative_to(folder).as_posix()
            if has_surrogate(name) and not any(map(_is_hidden, name.split("/"))):
                yield FoundFile(name, 0)


def has_surrogate(name: str) -> bool:
    """Return whether a name has bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False


@dataclass(frozen=True)
class Usage:
    """What is stored in a folder.

    Args:
        files: Files, hidden ones too.
        bytes: Their bytes.
    """

    files: int
    bytes: int


def usage(location: str) -> Usage:
    """Return what is stored in a folder and all folders below it."""
    fs, path = file_system(location)
    found = fs.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    sizes = [info.size for info in found if info.type == pafs.FileType.File]
    return Usage(len(sizes), sum(sizes))


def size_of(location: str) -> int | None:
    """Return a file's bytes; None if it is absent."""
    fs, path = file_system(location)
    info = fs.get_file_info(path)
    return info.size if info.type == pafs.FileType.File else None


def is_folder(location: str) -> bool:
    """Return whether a folder is there."""
    fs, path = file_system(location)
    return bool(fs.get_file_info(path).type == pafs.FileType.Directory)


def is_file(location: str) -> bool:
    """Return whether a file is there; of a store that is one request, where `exists` may take two."""
    if is_in_object_store(location):
        from ebbtide.storage.bucket import bucket_of, parted

        _, key = parted(location)
        return bucket_of(location).found(key) is not None
    fs, path = file_system(location)
    return bool(fs.get_file_info(path).type == pafs.FileType.File)


def exists(location: str) -> bool:
    """Return whether a file or folder is there."""
    fs, path = file_system(location)
    return bool(fs.get_file_info(path).type != pafs.FileType.NotFound)


def read_bytes(location: str) -> bytes | None:
    """Return a file's bytes; None if it is absent."""
    if is_in_object_store(location):
        from ebbtide.storage.bucket import bucket_of, parted

        _, key = parted(location)
        return bucket_of(location).read(key)
    fs, path = file_system(location)
    try:
        with fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def read_range(location: str, offset: int, size: int) -> bytes | None:
    """Return some bytes of a file, fewer where it ends; None if it is absent."""
    fs, path = file_system(location)
    try:
        with fs.open_input_file(path) as file:
            file.seek(offset)
            return bytes(file.read(size))
    except FileNotFoundError:
        return None


def write_bytes(location: str, data: bytes) -> None:
    """Write a file, over the one that is there; folders are made as needed."""
    fs, path = file_system(location)
    with failures_named(location):
        fs.create_dir(path.rpartition("/")[0])
        with fs.open_output_stream(path, compression=None) as stream:
            stream.write(data)


def copy_file(location: str, to: str) -> None:
    """Copy a file within a store, over the one that is there; folders are made as needed."""
    from_fs, from_path = file_system(location)
    to_fs, to_path = file_system(to)
    with failures_named(to):
        to_fs.create_dir(to_path.rpartition("/")[0])
        pafs.copy_files(from_path, to_path, from_fs, to_fs)


def replace_bytes(location: str, data: bytes) -> None:
    """Write a file in one piece: who reads it meanwhile, or after a power cut, sees the old one or the new one."""
    if not is_local(location):
        write_bytes(location, data)  # a put is in one piece
        return
    path = Path(location)
    unnamed = path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
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


def delete_unfinished(folder: str, *, older_than_s: float = DAY_S) -> None:
    """Delete the files of a local folder whose writer died before it gave them their names.

    Args:
        folder: Its location; nothing happens in a store, which has no such files.
        older_than_s: Seconds since they were last written; a younger one may still be written.
    """
    if not is_local(folder):
        return
    before_s = time.time() - older_than_s
    for path in Path(folder).glob(f".*{UNFINISHED}"):
        with suppress(FileNotFoundError):  # it has just got its name
            if path.stat().st_mtime <= before_s:
                path.unlink()


def aside_of(folder: str) -> str:
    """Return where a local folder may be moved, so that another one can be made in its place: nothing is there yet.

    Raises:
        ConfigError: it is in a store, which renames no folder at once.
    """
    if not is_local(folder):
        raise ConfigError.of(
            f"The folder '{folder}' has to be moved away first.",
            got="a folder of a store",
            allowed="a local one, which is renamed",
            next_step="Move it with the store's own tools, then run this again.",
        )
    number = 1
    while exists(f"{folder}.aside-{number}"):
        number += 1
    return f"{folder}.aside-{number}"


def move_aside(folder: str) -> str:
    """Rename a local folder; return where it is then. See `aside_of`."""
    aside = aside_of(folder)
    with failures_named(folder):
        Path(folder).rename(aside)
    return aside


def delete(location: str) -> None:
    """Delete a file, or a folder and all in it, if it is there."""
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
    """Open a file for reading, decompressed as its name says."""
    fs, path = file_system(location)
    return fs.open_input_stream(path)
