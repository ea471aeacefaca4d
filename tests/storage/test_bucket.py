"""A bucket on an S3 server: put if absent also when answers are lost, retried faults, and refusals."""

import gc
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from frame.limits import set_limits
from frame.thinned import thinned
from s3_server import BUCKET, SECRET, first

from ebbtide.errors import (
    ConfigError,
    DamagedFileError,
    StoreRefusedError,
    StoreUnavailableError,
    StoreUnsafeError,
    Terminal,
    Transient,
)
from ebbtide.ledger import Lease, writer_of
from ebbtide.storage import Location, ParquetFile, Usage
from ebbtide.storage._bucket import bucket_of, client_options, parted

pytestmark = pytest.mark.group("object_store")
OURS, THEIRS = b"ours", b"theirs"
QUICK_TRIES = 4
"""Requests of one call, the library's own retries included."""


def put(location, data):
    return writer_of(location).put_if_absent(location, data)


@pytest.fixture
def impatient():
    set_limits(budget_s=0.1, quick_retries={"max_retries": 0})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_file_is_put_once(root, scheme):
    location = f"{root}/a b/ü%20=#1.json".replace("s3://", f"{scheme}://")
    assert [put(location, OURS), put(location, THEIRS)] == [True, False]
    assert Location(location).read_bytes() == OURS
    assert Location(f"{root}/a b").list_files() == ["ü%20=#1.json"]


@pytest.mark.parametrize("times", [1, QUICK_TRIES + 2])
@pytest.mark.parametrize("how", ["503", "503 after", "lost"])
def test_put_whose_answer_is_lost_is_ours(proxy, root, how, times):
    location = f"{root}/1.json"
    with proxy.failing(first(how, "PUT", "1.json", times)):
        assert put(location, OURS)
    assert Location(location).read_bytes() == OURS
    n_puts = sum(method == "PUT" for method, _ in proxy.asked)
    assert n_puts > 1


@pytest.mark.parametrize("how", ["503", "503 after", "lost"])
def test_put_whose_answer_is_lost_is_not_ours_where_another_was_first(proxy, root, how):
    location = f"{root}/1.json"
    assert put(location, THEIRS)
    with proxy.failing(first(how, "PUT", "1.json")):
        assert not put(location, OURS)
    assert Location(location).read_bytes() == THEIRS


def test_put_that_lost_to_a_failed_put_is_retried(proxy, root):
    location = f"{root}/1.json"
    with proxy.failing(first("409", "PUT", "1.json")):
        assert put(location, OURS)
    assert Location(location).read_bytes() == OURS


def test_no_two_commits_have_the_same_bytes(root, monkeypatch):
    monkeypatch.setattr("ebbtide.delta._commit.now_ms", lambda: 1)
    tables = [f"{root}/a", f"{root}/b"]
    for table in tables:
        writer_of(table).commit_version(table, 0, [], {"operation": "WRITE"})
    one, other = (Location(f"{table}/_delta_log/{0:020d}.json").read_bytes() for table in tables)
    assert one != other


def test_store_that_overwrites_is_refused_before_a_table_is_made(proxy, root):
    message = rf"overwrites.* Got: '{root}/ledger/.*If-None-Match"
    with proxy.failing(lambda method, path: "heedless"):
        for _ in range(2):
            with pytest.raises(StoreUnsafeError, match=message), Lease(f"{root}/ledger", "p", 60):
                pass
    assert Location(f"{root}/ledger/_delta_log").list_files() == []
    with Lease(f"{root}/ledger", "p", 60):
        pass


def test_transient_fault_is_logged_and_the_call_retried(proxy, root, caplog):
    location = f"{root}/f"
    Location(location).write_bytes(OURS)
    with proxy.failing(first("503", "GET", "/f", QUICK_TRIES + 1)), caplog.at_level(logging.WARNING):
        assert Location(location).read_bytes() == OURS
    [logged] = caplog.messages
    assert f"'{location}' failed, tried again in" in logged
    assert "503 Service Unavailable, SlowDown" in logged


CALLS = {
    "read": lambda at: Location(f"{at}/f").read_bytes(),
    "size": lambda at: Location(f"{at}/f").size(),
    "list": lambda at: Location(at).list_files(),
    "walk": lambda at: Location(at).walk(),
    "put": lambda at: put(f"{at}/1.json", OURS),
    "write": lambda at: Location(f"{at}/g").write_bytes(OURS),
    "write_parquet": lambda at: ParquetFile(f"{at}/p").write(pa.table({"n": [1]}), row_group_size=9),
    "read_parquet": lambda at: ParquetFile(f"{at}/large.parquet").read(),
    "delete": lambda at: Location(f"{at}/f").delete(),
}


LARGE = pa.table({"n": np.random.default_rng(1).integers(0, 2**62, 400_000)})


def filled(root):
    """A folder with a file, and one that is fetched in parts."""
    Location(f"{root}/f").write_bytes(OURS)
    ParquetFile(f"{root}/large.parquet").write(LARGE, row_group_size=100_000)
    assert Location(f"{root}/large.parquet").size() > 1 << 20
    return root


@pytest.mark.parametrize("call", thinned(CALLS, 2))
def test_store_that_fails_all_the_time_is_a_transient_error(proxy, root, impatient, call):
    filled(root)
    with proxy.failing(lambda method, path: "503"), pytest.raises(StoreUnavailableError) as raised:
        CALLS[call](root)
    assert isinstance(raised.value, Transient)
    assert root in str(raised.value)
    assert "503 Service Unavailable" in str(raised.value)
    CALLS[call](root)


def test_parquet_file_of_a_store_that_fails_midway_is_not_called_damaged(proxy, root, impatient):
    location = f"{filled(root)}/large.parquet"
    with proxy.failing(lambda method, path: "503" if method == "GET" else None), pytest.raises(StoreUnavailableError):
        ParquetFile(location).read()
    Location(location).delete()
    with pytest.raises(DamagedFileError, match="is gone"):
        ParquetFile(location).read()


@pytest.mark.parametrize("call", thinned(CALLS, 2))
def test_store_that_is_not_there_is_a_transient_error(root, impatient, shell, call):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    shell.export(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    with pytest.raises(StoreUnavailableError, match="Connection refused"):
        CALLS[call](root)


@pytest.mark.parametrize("call", ["list", "walk", "put", "write", "write_parquet"])
def test_bucket_that_is_not_there_is_a_terminal_error(proxy, call):
    with pytest.raises(StoreRefusedError, match="404 Not Found, NoSuchBucket") as raised:
        CALLS[call]("s3://no-such-bucket/root")
    assert isinstance(raised.value, Terminal)


@pytest.mark.parametrize("call", thinned(CALLS, 2))
def test_forbidden_call_is_a_terminal_error_without_signed_text(proxy, root, call):
    filled(root)
    with proxy.failing(lambda method, path: "403"), pytest.raises(StoreRefusedError) as raised:
        CALLS[call](root)
    shown = f"{raised.value} {raised.value.__cause__}"
    assert "403 Forbidden" in shown
    assert SECRET not in shown
    assert os.environ["AWS_ACCESS_KEY_ID"] not in shown
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_plain_http_is_for_an_endpoint_that_says_so(shell):
    assert client_options(f"s3://{BUCKET}") == {}
    shell.export(AWS_ENDPOINT_URL="https://store.example")
    assert client_options(f"s3://{BUCKET}") == {}
    shell.export(AWS_ENDPOINT_URL="http://127.0.0.1:1")
    assert client_options(f"s3a://{BUCKET}") == {"allow_http": "true"}
    assert client_options("gs://other") == {}


def test_settings_that_are_not_usable_are_named(shell):
    shell.export(AZURE_STORAGE_ACCOUNT_KEY="no base64 at all")
    with pytest.raises(ConfigError, match="'abfss://tables@account") as raised:
        bucket_of("abfss://tables@account.dfs.core.windows.net/root")
    assert "no base64" not in str(raised.value)


@pytest.mark.parametrize(
    ("location", "root", "key"),
    [
        ("s3a://tables/shop/sink/", "s3a://tables", "shop/sink"),
        ("gs://tables", "gs://tables", ""),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net", "x"),
    ],
)
def test_location_is_a_bucket_and_a_key(location, root, key):
    assert parted(location) == (root, key)


def test_listing_gives_what_is_in_a_folder_and_nothing_beside_it(root):
    for name in ("in/b", "in/a", "in/_hidden", "in/inner/c", "in/.x/d", "inside"):
        Location(f"{root}/{name}").write_bytes(name.encode())
    assert Location(f"{root}/in").list_files() == ["a", "b"]
    found = Location(f"{root}/in").walk()
    assert [(file.name, file.size) for file in found] == [("a", 4), ("b", 4), ("inner/c", 10)]
    assert all(file.modified_ms > 1_600_000_000_000 for file in found)
    assert Location(f"{root}/in").usage() == Usage(5, 4 + 4 + 10 + 10 + 7)
    kinds = [Location(f"{root}/{name}").is_folder() for name in ("in", "in/a", "in/inner", "no", "insid")]
    assert kinds == [True, False, True, False, False]
    assert [Location(f"{root}/{name}").exists() for name in ("in", "in/a", "no", "insid")] == [True, True, False, False]


def test_absent_folder_is_an_error_where_it_is_walked_and_empty_where_it_is_listed(root):
    assert (Location(f"{root}/no").list_files(), Location(f"{root}/no").usage()) == ([], Usage(0, 0))
    assert (
        Location(f"{root}/no").read_bytes(),
        Location(f"{root}/no").size(),
        Location(f"{root}/no").read_range(0, 9),
    ) == (
        None,
        None,
        None,
    )
    with pytest.raises(FileNotFoundError):
        Location(f"{root}/no").walk()


@pytest.mark.parametrize("n_files", [3, pytest.param(1_001, marks=pytest.mark.grid)])
def test_folder_is_deleted_by_as_many_requests_as_it_takes(proxy, root, n_files):
    """More are deleted by more requests, which the library cuts."""
    with proxy.failing(first("503", "POST", "delete", QUICK_TRIES + 1)):
        files = [f"{root}/in/{number}" for number in range(n_files)] + [f"{root}/inside"]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda file: Location(file).write_bytes(b""), files))
        assert Location(f"{root}/in").usage().files == n_files
        Location(f"{root}/in").delete()
    assert (Location(f"{root}/in").exists(), Location(f"{root}/inside").exists()) == (False, True)
    Location(f"{root}/in").delete()
    Location(f"{root}/inside").delete()
    assert not Location(root).exists()


def test_file_is_read_in_any_order_and_in_parts(root):
    data = bytes(range(256)) * 5_000
    location = f"{root}/f"
    Location(location).write_bytes(data)
    assert len(data) > 1 << 20
    assert Location(location).read_range(300, 5) == data[300:305]
    assert Location(location).read_range(len(data) - 2, 9) == data[-2:]
    set_limits(read_ahead=100_000)
    with Location(location).open_stream() as stream:
        assert b"".join(iter(lambda: stream.read(77_777), b"")) == data


def test_file_too_large_for_memory_is_put_in_parts_whole(proxy, root):
    set_limits(in_memory=1 << 20)
    data = os.urandom(1 << 20) * 12
    with proxy.failing(first("503", "PUT", "partNumber=2", QUICK_TRIES + 1)):
        Location(f"{root}/f").write_bytes(data)
    assert Location(f"{root}/f").read_bytes() == data
    assert sum("partNumber=1" in path for _, path in proxy.asked) >= 2, "the whole is put again"


def test_large_parquet_file_is_read_by_a_few_requests(proxy, root):
    location = f"{filled(root)}/large.parquet"
    proxy.asked.clear()
    assert ParquetFile(location).read() == LARGE
    assert len(proxy.asked) <= 4


def test_file_that_was_not_closed_is_not_put(root):
    fs, path = Location(f"{root}/f").file_system()
    stream = fs.open_output_stream(path)
    stream.write(OURS)
    del stream
    gc.collect()
    assert not Location(f"{root}/f").exists()


def test_file_system_is_of_its_bucket(proxy):
    one, other = (Location(f"s3://{bucket}/x").file_system()[0] for bucket in (BUCKET, "other"))
    assert one == Location(f"s3://{BUCKET}/y").file_system()[0]
    assert one != other
    assert isinstance(one, pafs.PyFileSystem)
