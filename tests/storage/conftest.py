"""One server of each kind of store for all tests of a process; each test has a folder of its own in it, behind a proxy of its own."""

import uuid
from contextlib import ExitStack

import pytest
from s3_server import Proxy, S3Server
from servers.other_stores import AzureServer, GcsServer, azurite, has_gcs

SERVERS = {"s3": S3Server, "gs": GcsServer, "abfss": AzureServer}
IS_THERE = {"s3": lambda: True, "gs": has_gcs, "abfss": azurite}
ON_EVERY_STORE = ("test_bucket", "test_runs", "test_races")
"""Modules whose tests of a served store run on each kind of store: on S3 always, on the others by `make grid`, a few always."""
STORES_OF = {
    "test_store_that_is_not_there_is_a_transient_error": {"s3"},  # these look at answers in S3's form
    "test_bucket_that_is_not_there_is_a_terminal_error": {"s3"},
    "test_forbidden_call_is_a_terminal_error_without_signed_text": {"s3"},
    "test_file_too_large_for_memory_is_put_in_parts_whole": {"s3", "gs"},  # Azure's parts have no numbers
    "test_store_that_overwrites_is_refused_before_a_table_is_made": {
        "s3",
        "gs",
    },  # Azure's signature covers the condition
}
"""Tests of these modules that are not for every store."""
ALWAYS = {
    "test_file_is_put_once": {"gs"},
    "test_lease_is_won_by_one_of_many": {"gs"},
    "test_run_makes_the_tables_of_a_local_disk": {"gs"},
}
"""Those that `make test` runs on other stores than S3: Azurite takes too long to begin."""


def store_params(test):
    """Yield the stores of a test."""
    for name in STORES_OF.get(test, SERVERS):
        is_quick = name == "s3" or name in ALWAYS.get(test, ())
        yield name if is_quick else pytest.param(name, marks=pytest.mark.grid)


def pytest_generate_tests(metafunc):
    module = metafunc.module.__name__.rpartition(".")[2]
    if "store" in metafunc.fixturenames and module in ON_EVERY_STORE:
        metafunc.parametrize("store", sorted(store_params(metafunc.function.__name__), key=str), indirect=True)


@pytest.fixture(scope="session")
def servers():
    """Starts each server once."""
    started = {}
    with ExitStack() as stack:

        def start(name):
            if name not in started:
                if not IS_THERE[name]():
                    pytest.skip(f"no server that speaks as {name}://")
                started[name] = stack.enter_context(SERVERS[name]())
            return started[name]

        yield start


@pytest.fixture
def store(servers, request):
    return servers(getattr(request, "param", "s3"))


@pytest.fixture
def server(store):
    return store


@pytest.fixture
def proxy(store, tmp_path, shell):
    with Proxy(store) as proxy:
        shell.export(**store.environment(proxy.port, tmp_path))
        yield proxy


@pytest.fixture
def root(proxy, store):
    return f"{store.root}/{uuid.uuid4().hex}"
