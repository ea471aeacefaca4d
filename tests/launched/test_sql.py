"""Jobs of SQL as runs of a Dagster webserver."""

import pytest

from ebbtide.errors import SqlError
from ebbtide.sql.catalog import Filled
from ebbtide.sql.dagster_jobs import DagsterJobs
from ebbtide.sql.jobs import JobStatus, job_of


@pytest.mark.grid
@pytest.mark.usefixtures("sales_run")
def test_job_is_a_run_that_is_listed_and_ends(dagster_dev, home, spec):
    jobs = DagsterJobs(dagster_dev.url)
    [begun] = jobs.start([Filled(home, spec("sales"))])
    assert job_of(jobs, begun.id).status in (JobStatus.RUNNING, JobStatus.FINISHED)
    dagster_dev.succeeded(begun.id)
    found = job_of(jobs, begun.id)
    assert (found.pipelines, found.status) == (("sales",), JobStatus.FINISHED)
    assert found.message == f"{dagster_dev.url}/runs/{begun.id}"
    assert [job.id for job in jobs.all()] == [begun.id]  # the other runs are not of SQL


def test_pipeline_that_no_location_has_is_refused(dagster_dev, home, spec):
    absent = spec("sales").model_copy(update={"name": "absent"})
    with pytest.raises(
        SqlError, match=r"has no job 'absent_stream'. Allowed: definitions in one of its locations: tests"
    ):
        DagsterJobs(dagster_dev.url).start([Filled(home, absent)])


def test_webserver_that_does_not_answer_is_told():
    with pytest.raises(SqlError, match="does not answer"):
        DagsterJobs("http://127.0.0.1:9").all()
