"""The sensor on failures: a person is asked for what needs one, once, and for nothing that passes by itself."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import dagster as dg
import pytest
from local.local_pipeline import LocalPipeline

from assets.failed_runs import WEBHOOK, failed_runs
from ebbtide.dagster import ClockResource, SparkResource, StorageResource, pipeline_definitions


class Chat:
    """A server that keeps what is posted."""

    def __init__(self):
        posted = self.posted = []

        class Takes(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posted.append(json.loads(body)["text"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                """Say nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Takes)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def chat(shell):
    made = Chat()
    shell.export(**{WEBHOOK: made.address})
    yield made
    made.server.shutdown()
    made.server.server_close()


def look(job):
    """Run a job that fails, and have the sensor look at it."""
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not result.success
        [event] = [each for each in result.all_events if each.is_run_failure]
        context = dg.build_run_status_sensor_context("failed_runs", event, instance, result.dagster_run)
        failed_runs(context.for_run_failure())


def test_failure_that_needs_a_hand_is_posted_with_its_error(chat, tmp_path):
    pipeline = LocalPipeline(tmp_path)
    pipeline.source.rmdir()
    resources = {
        "spark": SparkResource(),
        "storage": StorageResource(root=pipeline.root),
        "clock": ClockResource(),
    }
    made = dg.Definitions.merge(pipeline_definitions(pipeline.spec), dg.Definitions(resources=resources))
    look(made.resolve_job_def("t"))
    [text] = chat.posted
    assert text.startswith("t of t has failed, run ")
    assert "SourceReadError: The source folder" in text
    assert "Create it, or correct source.path" in text


def test_failure_that_passes_by_itself_is_left_to_the_next_run(chat):
    @dg.op
    def fail():
        raise dg.Failure("the broker does not answer", metadata={"is_transient": True})

    @dg.job
    def job():
        fail()

    look(job)
    assert chat.posted == []
