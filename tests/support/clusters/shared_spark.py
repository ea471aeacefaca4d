"""The tests' Spark session as a resource of Dagster."""

from ebbtide.dagster import SparkResource


class SharedSpark(SparkResource):
    """Lends the tests' session, which outlives a run."""

    def teardown_after_execution(self, context):
        """Leave it running."""
