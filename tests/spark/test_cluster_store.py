"""A root in a bucket with Spark on a cluster: Ebbtide's own client in driver and tasks, Hadoop's S3A client for Spark's checkpoint and VACUUM."""

from contextlib import closing

import pytest
from clusters.spark_cluster import Driver, cluster, written_spec
from clusters.spark_support import cut, shop_lines, shop_spec, write
from local.support import plain
from oracles.shop_truth import same_as_truth
from s3_server import BUCKET, S3Server, environment

from ebbtide.runtime import Plan
from ebbtide.storage import Location

AWS_SDK = "2.35.4"
PARTS = ("s3", "s3-transfer-manager", "sts")
PACKAGES = ["org.apache.hadoop:hadoop-aws:3.5.0", *(f"software.amazon.awssdk:{part}:{AWS_SDK}" for part in PARTS)]
"""What S3A needs of AWS's SDK; its bundle of 650 MB has all services."""


def of_bucket(variables):
    """Settings of Spark for the bucket."""
    return {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.excludes": "software.amazon.awssdk:bundle",
        "spark.hadoop.fs.s3a.endpoint": variables["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        **{f"spark.executorEnv.{name}": f"${{{name}}}" for name in variables},
    }


@pytest.mark.grid  # fetches packages
def test_shop_in_a_bucket_with_a_host_killed_in_each_step_equals_its_source_database(tmp_path, shell):
    source = write(tmp_path / "in", *cut(shop_lines("orders"), 4))
    spec = shop_spec("orders", source, files=2)
    root = f"s3a://{BUCKET}/root"
    with S3Server() as server, cluster(tmp_path, 2) as running:
        variables = environment(server.port)
        shell.export(**variables)
        deaths = []

        def seen(event):
            deaths.append(event["deaths"])
            running.replace_dead()

        folder = written_spec(tmp_path / "spec", spec)
        with closing(Driver(tmp_path, running.address, "host", of_bucket(variables))) as driver:
            driver.do("run", folder, root, seen=seen)
            assert deaths[:2] == [1, 1]
            assert same_as_truth(spec, root)
            for operation in ("compact", "vacuum"):
                driver.do("operate", folder, root, operation, "{}", seen=seen)
                assert same_as_truth(spec, root)


@pytest.mark.grid  # fetches packages
def test_stream_of_a_function_has_its_checkpoint_in_the_bucket(tmp_path, shell):
    rows = tmp_path / "in" / "rows"
    rows.mkdir(parents=True)
    source = {"type": "spark", "function": "spark_streams:rows"}
    spec = plain(
        "id BIGINT NOT NULL, n BIGINT",
        source=source,
        format={"type": "plain", "row": None},
        order={"sequence": ["n"]},
    )
    folder = written_spec(tmp_path / "spec", spec)
    root = f"s3a://{BUCKET}/root"
    with S3Server() as server, cluster(tmp_path, 1) as running:
        variables = environment(server.port)
        shell.export(**variables)
        conf = of_bucket(variables) | {"spark.test.in": str(tmp_path / "in")}
        for number in range(2):  # each by a driver that finds the query by its checkpoint
            (rows / f"{number}.json").write_text(f'{{"kind": "+U", "id": {number}, "n": 1}}\n')
            (tmp_path / str(number)).mkdir()
            with closing(Driver(tmp_path / str(number), running.address, "nobody", conf)) as driver:
                driver.do("run", folder, root)
        sink = Plan.under(root, spec).sink.snapshot()
        assert sorted(sink.rows(spec.sink_table.columns)["id"].to_pylist()) == [0, 1]
        assert len(list(Location(f"{root}/t/query").subfolders())) == 1, "the second run went on with it"
