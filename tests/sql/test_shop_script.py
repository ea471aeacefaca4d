"""The shop in SQL alone: the script that makes its five tables, as a user executes it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clusters.spark_support import LOCAL, shop_lines, write
from local.support import SHOP
from oracles.shop_truth import same_as_truth

from ebbtide import run
from ebbtide.sql import Catalog, EmbeddedSession
from ebbtide.sql._fill import plan_insert, write_filling
from ebbtide.sql._jobs import Jobs, JobStatus
from ebbtide.sql._parsing import parse
from ebbtide.sql._statements import StatementSet
from ebbtide.sql._tokens import split

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = SHOP / "shop.sql"
NAMES = {"customers", "orders", "order_items", "price_list", "order_balances"}


def test_table_of_the_script_equals_the_source_database(tmp_path):
    write(tmp_path / "in", shop_lines("price_list"))
    catalog = Catalog(str(tmp_path / "root"), tmp_path / "defs")
    session = EmbeddedSession({"default": catalog}, {})
    *declarations, filling = split(SCRIPT.read_text())
    for declaration in declarations:
        session.execute(declaration.text.replace("data/shop/capture", str(tmp_path / "in"))).result(60)
    statements = parse(filling)
    assert isinstance(statements, StatementSet)
    assert {insert.table for insert in statements.inserts} == NAMES
    for insert in statements.inserts:
        write_filling(catalog, plan_insert(catalog, insert))
    session.close()
    spec = catalog.pipeline("price_list").spec
    run(LOCAL, spec, catalog.root)
    assert same_as_truth(spec, Path(catalog.root))


@pytest.mark.grid
def test_script_makes_the_five_tables_of_the_source_database(tmp_path):
    (tmp_path / "pyproject.toml").touch()  # paths of the script are relative to the project
    (tmp_path / "data").symlink_to(ROOT / "data")
    executed = subprocess.run(
        [sys.executable, "-m", "ebbtide.cli", "sql", "-f", SCRIPT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert executed.returncode == 0, executed.stderr
    [job] = Jobs(str(tmp_path / ".ebbtide")).all()
    assert set(job.pipelines) == NAMES
    ends_at = time.monotonic() + 1200
    while job.status is JobStatus.RUNNING:
        assert time.monotonic() < ends_at
        time.sleep(1)
    assert job.status is JobStatus.FINISHED, job.message
    pipelines = Catalog(str(tmp_path / ".ebbtide"), tmp_path / "defs").pipelines()
    wrong = [name for name, entry in pipelines.items() if not same_as_truth(entry.spec, tmp_path / ".ebbtide")]
    assert (set(pipelines), wrong) == (NAMES, [])
