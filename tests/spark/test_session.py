"""The end of a session, also of one whose JVM another start made."""

import subprocess
import sys

import pytest
from frame.waiting import PATIENCE_S

CODE = """
from pyspark.sql import SparkSession
from ebbtide.sessions._session import end_session
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
end_session(session)
print("ended")
"""


@pytest.mark.grid
def test_session_that_another_start_made_is_ended():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stdout.splitlines()[-1:] == ["ended"], done.stderr
