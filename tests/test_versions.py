"""The shop beside each Spark that Ebbtide runs on, and beside the oldest and the newest packages: `make versions`.

Each environment is built by uv in `.environments`, from what a user would install. It is used again until its packages are changed here or in pyproject.toml.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebbtide.sessions import SparkVersion

ROOT = Path(__file__).resolve().parent.parent
SPARK = ["--editable", ".[spark]"]
ALL = ["--editable", ".[dagster,kafka,lineage,otel,pipes,quality,rocksdb,spark,sql]"]
ENVIRONMENTS = {
    "3.5": [*SPARK, "pyspark==3.5.*", "pyarrow<22"],
    "4.0": [*SPARK, "pyspark==4.0.*"],
    "4.1": [*SPARK, "pyspark==4.1.*"],
    "4.3": [*SPARK, "pyspark==4.3.*"],
    "lowest": ["--resolution", "lowest-direct", *ALL],
    "highest": ["--resolution", "highest", *ALL],
}
"""Name of an environment to what `uv pip install` is given. All other tests run on the locked packages, with Spark 4.2."""


def uv() -> str:
    """The uv that runs these tests, or another one that is there."""
    return os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")


def environment(packages: Sequence[str], folder: Path) -> Path:
    """Return the Python of an environment with packages; it is built if it is not there as asked for."""
    asked = " ".join([sys.version, *packages, (ROOT / "pyproject.toml").read_text(encoding="utf-8")])
    mark, wanted = folder / "built-from", hashlib.sha256(asked.encode()).hexdigest()
    python = folder / "bin" / "python"
    if not mark.is_file() or mark.read_text() != wanted:
        subprocess.run([uv(), "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
        subprocess.run([uv(), "pip", "install", "--quiet", "--python", python, *packages], check=True, cwd=ROOT)
        mark.write_text(wanted)
    return python


@pytest.mark.grid
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_five_sinks_of_the_shop_equal_the_truth(name, tmp_path):
    python = environment(ENVIRONMENTS[name], ROOT / ".environments" / name)
    support = ROOT / "tests" / "support"
    done = subprocess.run(
        [python, support / "shop_on_spark.py", tmp_path], check=False, capture_output=True, text=True, cwd=support
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": equal") == 10, "five on Spark, five in process"


def test_each_version_of_spark_is_tried_in_some_environment():
    locked = ".".join(map(str, SparkVersion.installed().minor))
    assert {locked, *ENVIRONMENTS} >= set(SparkVersion.minors())
