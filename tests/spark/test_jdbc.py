"""Tables are read by JDBC through Spark's own server, as docs/how-to/read-the-sink.md says."""

import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlparse

import pytest
from clusters.page import running
from clusters.spark_cluster import SPARK, free_port
from frame.waiting import until
from local.support import plain

from ebbtide import InProcess, run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-sink.md"


def commands(words):
    """The server's command and the client's, with words of this machine."""
    [block] = re.findall(r"## By JDBC\n.*?```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    text = block.replace("\\\n", "")
    for word, here in words.items():
        assert word in text, word
        text = text.replace(word, here)
    server, client = text.strip().splitlines()
    return server, client


@pytest.mark.demand("sql-jdbc")
@pytest.mark.grid  # two JVMs, a minute
def test_sink_is_read_by_the_commands_of_the_page(spark, tmp_path):
    rows = tmp_path / "in"
    rows.mkdir()
    spec = plain(
        "id BIGINT NOT NULL, status STRING, n BIGINT",
        source={"path": str(rows), "records": "value"},
        order={"sequence": ["n"]},
    )
    for number, lines in enumerate(
        (
            '{"kind": "+I", "row": {"id": 1, "status": "new", "n": 1}}\n{"kind": "+I", "row": {"id": 2, "n": 1}}\n',
            '{"kind": "+U", "row": {"id": 1, "status": "paid", "n": 2}}\n{"kind": "-D", "row": {"id": 2, "n": 2}}\n',
        )
    ):
        (rows / f"{number}.jsonl").write_text(lines)
        run(InProcess(), spec, str(tmp_path))  # the second one leaves deletion vectors
    jars = [urlparse(jar).path for jar in spark.conf.get("spark.jars").split(",")]
    port = str(free_port())
    server, client = commands({"10000": port, "ROOT/NAME": str(tmp_path / spec.name)})
    env = os.environ | {
        "PATH": f"{SPARK / 'bin'}:{os.environ['PATH']}",
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "DELTA_JARS": ":".join(jars),
    }
    with running(["bash", "-c", f"exec {server}"], tmp_path, env):
        until(lambda: "HiveThriftServer2 started" in (tmp_path / "processes.log").read_text(), "the server")
        read = subprocess.run(
            ["bash", "-c", client], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300
        )
    assert re.findall(r"^\| (\d+) +\| (\w+) +\|$", read.stdout, re.MULTILINE) == [("1", "paid")], read.stderr
