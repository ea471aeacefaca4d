"""One server of each kind of store for all tests of a process; each test has a folder of its own in it, behind a proxy of its own."""

import uuid
from contextlib import ExitStack

import pytest
from other_stores import AzureServer, GcsServer, azurite, has_gcs
from s3_server import Proxy, S3Server

SERVERS = {"s3": S3Server, "gs": GcsServer, "abfss": AzureServer}
IS_THERE = {"s3": lambda: True, "gs": has_gcs, "abfss": azurite}
ON_EVERY_STORE = ("test_bucket", "test_runs", "test_races")
"""Modules whose tests of a served store run on each kind of store: on S3 always, on the others by `make grid`, a few always."""
OTHERS = [pytest.param(name, marks=pytest.mark.grid) for name in SERVERS if name != "s3"]


def pytest_generate_tests(metafunc):
    if "store" in metafunc.fixturenames and metafunc.module.__name__.rpartition(".")[2] in ON_EVERY_STORE:
        metafunc.parametrize("store", ["s3", *OTHERS], indirect=True)


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
def proxy(store, tmp_path, monkeypatch):
    with Proxy(store) as proxy:
        for name, value in store.environment(proxy.port, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def root(proxy, store):
    return f"{store.root}/{uuid.uuid4().hex}"
