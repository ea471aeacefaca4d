"""From bytes to lines, in bounded memory.

LF, CRLF and a single CR end a line: in a JSON record they are only white space, so old line ends do not join records. Objects
without a delimiter, as written by Amazon Data Firehose, are a line each. A UTF-8 byte order mark at the head of a file is
skipped. UTF-16, UTF-32 and compressed files are recognized by their first bytes and refused.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

CHUNK_BYTES = 2**20
"""Bytes read at once: a few hundred lines."""
_LF = ord(b"\n")
_LINE_END = re.compile(rb"[\r\n]")
_JOINT = b"}{"
"""The end of an object and the start of the next; within a JSON object these bytes occur only in texts."""
_OBJECTS = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
"""Finds the end of an object; its values are not used."""
_OTHER_MARKS = (
    codecs.BOM_UTF16_LE,  # UTF-32 LE begins with the same bytes
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF32_BE,
)
_NO_TEXT = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PAR1": "Parquet",
    b"Obj\x01": "Avro",
    **{b"BZh%d1AY&SY" % level: "bzip2" for level in range(1, 10)},
}
"""First bytes of files that are not text, and their kind."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, nbytes: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        ...


class NoTextError(ValueError):
    """Raised if the first bytes show that a stream is not UTF-8 text.

    Args:
        message: The kind of data.
        next_step: The remedy.
    """

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message)
        self.next_step = next_step


def split_lines(stream: Readable, limit: int, *, is_head: bool = True) -> Iterator[pa.BinaryArray]:
    r"""Yield lines without their ends, those of a chunk together; the last line may lack its end.

    Adjacent objects on a line become separate lines, up to the first one that is longer than `limit` or not JSON: from there the
    rest is one line. So the result does not depend on the chunks. At most one chunk and `limit` bytes are in memory, even for
    longer lines.

    Args:
        stream: Read to its end.
        limit: A longer line is cut to its first `limit` + 1 bytes.
        is_head: It begins where a file begins, and not at a later line.

    Raises:
        NoTextError: the stream begins with the mark of UTF-16 or UTF-32, or like a compressed file.

    Example:
        >>> import io
        >>> [lines.to_pylist() for lines in split_lines(io.BytesIO(b"one\r\ntwo\rthree"), limit=3)]
        [[b'one', b'two'], [b'thre']]
        >>> [lines.to_pylist() for lines in split_lines(io.BytesIO(b'{"a":1}{"a":2}\n'), limit=9)]
        [[b'{"a":1}', b'{"a":2}']]
    """
    rest = b""  # the unfinished line, up to the bytes that may be yielded
    after_cr = False
    chunk = stream.read(CHUNK_BYTES)
    if is_head:
        chunk = _text(chunk)
    while chunk:
        if after_cr:
            chunk = chunk.removeprefix(b"\n")  # of a CRLF that two chunks share; the CR has ended the line
        after_cr = chunk.endswith(b"\r")
        if len(rest) > limit:  # only the end of this line still matters
            end = _LINE_END.search(chunk)
            chunk = chunk[end.start() :] if end else b""
        text = rest + chunk
        last_end = max(text.rfind(b"\n"), text.rfind(b"\r"))
        closed = text[: last_end + 1]
        rest = text[last_end + 1 :]
        if closed:
            yield _closed_lines(closed, limit)
        if _has_joint(rest):
            *objects, rest = _objects(rest, limit)
            if objects:
                yield pa.array(objects, pa.binary())
        rest = rest[: limit + 1]
        chunk = stream.read(CHUNK_BYTES)
    if rest:
        yield pa.array([rest], pa.binary())


def next_line(stream: Readable) -> int | None:
    """Return where the first line feed of a stream ends, from its beginning; None if there is none.

    A line feed ends a line wherever it is. A carriage return alone does not: a line feed may follow, which belongs to it.
    """
    n_before = 0
    while chunk := stream.read(CHUNK_BYTES):
        found = chunk.find(b"\n")
        if found >= 0:
            return n_before + found + 1
        n_before += len(chunk)
    return None


def _closed_lines(text: bytes, limit: int) -> pa.BinaryArray:
    """Return the lines of a text that ends with a line end; lines above `limit` bytes are cut."""
    if b"\r" not in text and not _has_joint(text):
        # The usual case, without an object per line: the bytes without line ends, and the offsets of the lines.
        raw = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(raw == _LF)
        n_lines = len(ends)
        offsets = np.zeros(n_lines + 1, np.int32)
        offsets[1:] = ends - np.arange(n_lines)
        if np.diff(offsets).max() <= limit:
            data = text.replace(b"\n", b"")
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            return pa.Array.from_buffers(pa.binary(), n_lines, buffers)
    lines = [part[: limit + 1] for line in text.splitlines() for part in _objects(line, limit)]
    return pa.array(lines, pa.binary())


def _has_joint(text: bytes) -> bool:
    """Return whether `}{` is in a text, six times faster than `bytes.find`.

    Pairs of bytes are compared as 2-byte integers, once starting at the first byte and once at the second.
    """
    [joint] = np.frombuffer(_JOINT, np.uint16)
    for first in (0, 1):
        n_pairs = max(len(text) - first, 0) // 2
        pairs = np.frombuffer(text, np.uint16, n_pairs, first) if n_pairs else np.empty(0, np.uint16)
        if (pairs == joint).any():
            return True
    return False


def _objects(line: bytes, limit: int) -> list[bytes]:
    """Return the adjacent objects at the start of a line, and its rest; only the line if there are not two."""
    if _JOINT not in line:
        return [line]
    # One character per byte: finding an object's end needs no decoding of texts, and its index is the byte's.
    text = line.decode("latin-1")
    parts = []
    start = 0
    while True:
        try:
            _, end = _OBJECTS.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        is_joined = text.startswith("{", end) and text.startswith("{", start)
        if not is_joined or end - start > limit:
            break
        parts.append(line[start:end])
        start = end
    return [*parts, line[start:]]


def _text(head: bytes) -> bytes:
    """Return the head of a file without its byte order mark; refuse data that is not text."""
    for mark in _OTHER_MARKS:
        if head.startswith(mark):
            found = mark.hex(" ").upper()
            raise NoTextError(
                f"it begins with {found}, the byte order mark of UTF-16 or UTF-32",
                "Write it again as UTF-8, under the same name, and run again.",
            )
    for first, kind in _NO_TEXT.items():
        if head.startswith(first):
            found = first.hex(" ").upper()
            raise NoTextError(
                f"it begins with {found}, like {kind}",
                "Give a gzip file a name that ends in .gz, write any other again as JSON lines, and run again.",
            )
    return head.removeprefix(codecs.BOM_UTF8)
