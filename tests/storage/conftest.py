"""One S3 server for all tests of a process; each test has a folder of its own in it, behind a proxy of its own."""

import uuid

import pytest
from s3_server import BUCKET, Proxy, S3Server, environment


@pytest.fixture(scope="session")
def server():
    with S3Server() as server:
        yield server


@pytest.fixture
def proxy(server, monkeypatch):
    with Proxy(server.port) as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def root(proxy):
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"
