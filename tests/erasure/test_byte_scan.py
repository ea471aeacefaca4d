"""One canary in a container of each kind is found, and none in a clean one."""

import base64
import bz2
import gzip
import io
import json
import lzma
import secrets
import shutil
import sqlite3
import struct
import tarfile
import zipfile
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs.byte_scan import Hit, scan, scan_files

CANARY = secrets.token_hex(16)
OTHER = secrets.token_hex(16)
CANARIES = [CANARY, *(secrets.token_hex(16) for _ in range(199))]
RAW = bytes.fromhex(CANARY)
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
ENCODINGS = ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]
FILLING = [secrets.token_hex(16) for _ in range(400)]


def parquet(value=CANARY, **options):
    column = [*FILLING, value, *FILLING] if isinstance(value, str) else [value] * 3
    file = io.BytesIO()
    pq.write_table(pa.table({"v": column}), file, **options)
    return file.getvalue()


def arrow(value=CANARY, compression=None, opens=pa.ipc.new_file):
    rows = pa.table({"v": [*FILLING, value, *FILLING]})
    file = io.BytesIO()
    with opens(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(rows)
    return file.getvalue()


def compressed(codec, value=CANARY):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write("".join([*FILLING, value, *FILLING]).encode())
    return sink.getvalue().to_pybytes()


def lz4_block(value=CANARY):
    content = "".join([*FILLING[:9] * 9, value]).encode()
    body = pa.compress(content, "lz4_raw", asbytes=True)
    return b"LZ4Block" + struct.pack("<BIII", 0x26, len(body), len(content), 0) + body


def snappy_frame(value=CANARY):
    body = pa.compress("".join([*FILLING[:9] * 9, value]).encode(), "snappy", asbytes=True)
    return b"\xff\x06\x00\x00sNaPpY" + b"\0" + (len(body) + 4).to_bytes(3, "little") + b"crc." + body


def snappy_block(value=CANARY):
    body = pa.compress("".join([*FILLING[:9] * 9, value]).encode(), "snappy", asbytes=True)
    return b"\x82SNAPPY\0" + struct.pack(">III", 1, 1, len(body)) + body


def in_zip(value=CANARY):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", " ".join([*FILLING, value]))
    return file.getvalue()


def in_tar_gz(value=CANARY):
    file = io.BytesIO()
    content = " ".join([*FILLING, value]).encode()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def database(folder, cell):
    with sqlite3.connect(folder / "events.db") as connection:
        connection.execute("CREATE TABLE events (id INTEGER, body)")
        connection.execute("INSERT INTO events VALUES (1, ?)", (cell,))
    connection.close()


def _zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("part.parquet", content)
    return file.getvalue()


def _without_footer(value):
    return _before_footer(parquet(value, compression="zstd", write_statistics=False))


def _before_footer(whole):
    length = int.from_bytes(whole[-8:-4], "little")
    return whole[: -8 - length]


BYTES = {
    "digits": lambda value: f'{{"v": "{value}"}}'.encode(),
    "capitals": lambda value: value.upper().encode(),
    "raw": lambda value: b"\0\1" + bytes.fromhex(value) + b"\2",
    "utf-16": lambda value: value.encode("utf-16"),
    "base64 of a record": lambda value: json.dumps({"raw": base64.b64encode(f'{{"a": "{value}"}}'.encode()).decode()}).encode(),
    "base64 of bytes": lambda value: base64.b64encode(bytes.fromhex(value)),
    "half of it": lambda value: value[:20].encode(),
    "gzip": lambda value: gzip.compress(value.encode()),
    "two members of gzip": lambda value: gzip.compress(b"first") + gzip.compress(value.encode()),
    "gzip cut off": lambda value: gzip.compress("".join([value, *FILLING]).encode())[:-200],
    "zlib": lambda value: zlib.compress(value.encode()),
    "bzip2": lambda value: bz2.compress(value.encode()),
    "xz": lambda value: lzma.compress(value.encode()),
    "zstd": lambda value: compressed("zstd", value),
    "lz4": lambda value: compressed("lz4", value),
    "lz4 blocks": lz4_block,
    "snappy": snappy_frame,
    "snappy blocks": snappy_block,
    "zip": in_zip,
    "tar.gz": in_tar_gz,
    "arrow": arrow,
    "arrow zstd": lambda value: arrow(value, "zstd"),
    "arrow lz4": lambda value: arrow(value, "lz4"),
    "arrow with a checksum": lambda value: arrow(value, "zstd") + b"crc4",
    "arrow stream": lambda value: arrow(value, "zstd", pa.ipc.new_stream),
    "parquet in zip in gzip": lambda value: gzip.compress(_zipped(parquet(value))),
    "nested": lambda value: parquet({"a": [{"b": value}]}, compression="zstd"),
    "binary": lambda value: parquet(bytes.fromhex(value), compression="zstd", write_statistics=False),
    "parquet without a footer": _without_footer,
}  # fmt: skip


@pytest.mark.parametrize("kind", BYTES)
def test_canary_in_a_container_is_found_and_a_clean_one_is_clean(tmp_path, kind):
    (tmp_path / "a").write_bytes(BYTES[kind](CANARY))
    (tmp_path / "b").write_bytes(BYTES[kind](OTHER))
    hits = scan([tmp_path], CANARIES)
    assert {(hit.canary, hit.path) for hit in hits} == {(CANARY, "a")}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_canary_in_a_page_is_found_under_each_codec_and_encoding(codec, version):
    files = {}
    for encoding in ENCODINGS:
        options = {"compression": codec, "data_page_version": version, "write_statistics": False}
        is_dictionary = encoding == "dictionary"
        options |= {"use_dictionary": is_dictionary, "column_encoding": None if is_dictionary else encoding}
        files[f"planted {encoding}"] = parquet(**options)
        files[f"clean {encoding}"] = parquet(OTHER, **options)
    hits = scan_files(files.items(), CANARIES)
    assert {hit.path for hit in hits} == {f"planted {encoding}" for encoding in ENCODINGS}
    for encoding in ENCODINGS:
        found_by = {hit.how for hit in hits if hit.path == f"planted {encoding}"}
        assert "parquet values of v" in found_by
        assert any(how.startswith("parquet page") for how in found_by), found_by


@pytest.mark.parametrize("place", ["footer", "column index"])
def test_canary_in_statistics_is_found_in_the_bytes(place):
    greatest = "f" * 4 + CANARY[4:]
    data = parquet(greatest, compression="zstd", write_page_index=place == "column index")
    if place == "column index":  # it stands before the footer
        data = _before_footer(data)
    assert "bytes" in {hit.how for hit in scan_files([("a", data)], [CANARY])}


def test_canary_in_the_name_of_a_file_or_folder_or_behind_a_link_is_found(tmp_path):
    (tmp_path / f"of-{CANARY}").mkdir()
    (tmp_path / f"{CANARY}.json").touch()
    (tmp_path / "link").symlink_to(f"/nowhere/{CANARY}")
    assert scan([tmp_path], CANARIES) == [
        Hit(CANARY, f"{CANARY}.json", "name"),
        Hit(CANARY, "link", "bytes"),
        Hit(CANARY, f"of-{CANARY}", "name"),
    ]


@pytest.mark.parametrize(
    "cell", [lambda text: text, lambda text: zlib.compress(text.encode()), lambda text: text * 900]
)
def test_canary_in_a_cell_of_a_database_is_found(tmp_path, cell):
    database(tmp_path, cell(CANARY))
    assert {hit.how.split(" >")[0] for hit in scan([tmp_path], CANARIES)} >= {"sqlite table events"}
    (tmp_path / "events.db").unlink()
    database(tmp_path, cell(OTHER))
    assert scan([tmp_path], CANARIES) == []


def test_canary_in_rocksdb_is_found(tmp_path):
    rocksdict = pytest.importorskip("rocksdict")
    for name, value in (("planted", CANARY), ("clean", OTHER)):
        database = rocksdict.Rdict(str(tmp_path / name), rocksdict.Options(raw_mode=True))
        for number, filling in enumerate(FILLING):
            database[str(number).encode()] = filling.encode()
        database[b"x"] = value.encode()
        database.flush()
        database.compact_range(None, None)
        database.close()
    assert {hit.canary for hit in scan([tmp_path / "planted"], CANARIES)} == {CANARY}
    assert scan([tmp_path / "clean"], CANARIES) == []


@pytest.mark.parametrize("kind", ["parquet", "arrow", "zip", "sqlite"])
def test_container_that_cannot_be_read_is_a_finding(tmp_path, kind):
    database(tmp_path, "x" * 20_000)
    whole = {
        "parquet": parquet(OTHER),
        "arrow": arrow(OTHER),
        "zip": in_zip(OTHER),
        "sqlite": (tmp_path / "events.db").read_bytes(),
    }[kind]
    shutil.rmtree(tmp_path)
    damaged = whole[:100] + bytes(len(whole) - 132) + whole[-32:]
    [hit] = scan_files([("a", damaged)], CANARIES)
    assert (hit.canary, hit.how.split(":")[0]) == ("", f"unreadable {kind}")
