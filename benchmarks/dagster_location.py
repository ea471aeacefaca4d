"""Measures what a code location of many pipelines costs Dagster: CPU seconds to load it, and until a launched run works; bytes of what it sends.

```
python benchmarks/dagster_location.py --pipelines 50
```

Each pipeline has a `defs.yaml`. Dagster asks a location for a description of its repository first, and of each job when it is looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = """\
type: ebbtide.dagster.UpsertPipeline
attributes:
  name: {name}
  description: Orders of a shop, one row each.
  source: {{path: data/{name}}}
  format: {{type: debezium}}
  schema: |
    order_id BIGINT NOT NULL,
    customer_id BIGINT,
    status STRING NOT NULL,
    total DECIMAL(14,2),
    notes STRING,
    placed_at TIMESTAMP NOT NULL,
    updated_at TIMESTAMP_NTZ NOT NULL,
    ship_on DATE
  key: [order_id]
  order: {{sequence: [_lsn]}}
  ttl: 30d
"""

LOCATION = """\
import json, os, time
from pathlib import Path

import dagster as dg
import ebbtide

run = ebbtide.run


def noted(*args, **options):
    Path(os.environ["NOTED"]).write_text(json.dumps(time.process_time()))
    return run(*args, **options)


ebbtide.run = noted


@dg.definitions
def defs():
    found = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    return dg.Definitions.merge(found, dg.Definitions(executor=dg.in_process_executor))
"""
INSTANCE = """\
telemetry: {enabled: false}
run_coordinator: {module: dagster.core.run_coordinator, class: DefaultRunCoordinator}
"""
WORKS_WITHIN_S = 120.0


def main() -> int:
    """Load the location in a fresh process, several times; print the best time, and the sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=50, help="Pipelines of the project. Default: 50.")
    parser.add_argument("--folder", help="Measure the location of this folder in this process; for the script itself.")
    parser.add_argument("--runs", type=int, default=3, help="Fresh processes, of which the fastest counts. Default: 3.")
    given = parser.parse_args()
    if given.folder:
        print(json.dumps(measure(Path(given.folder))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.pipelines):
            path = Path(folder) / "defs" / f"orders_{number:03}"
            path.mkdir(parents=True)
            (path / "defs.yaml").write_text(SPEC.format(name=path.name), encoding="utf-8")
        command = [sys.executable, __file__, "--folder", folder]
        found = [json.loads(subprocess.check_output(command)) for _ in range(given.runs)]
        worked = [until_work(Path(folder)) for _ in range(given.runs)]
    best = min(found, key=lambda each: each["load_cpu_s"])
    best["worker_cpu_s"] = round(min(worked), 2)
    for name, value in best.items():
        print(f"{name:<24}{value:>14,}")
    print(f"{'bytes_per_pipeline':<24}{best['bytes_whole'] // given.pipelines:>14,}")
    return 0


def measure(folder: Path) -> dict[str, float]:
    """Load a folder of definitions; return what it took and what it holds."""
    import dagster as dg
    from dagster._core.remote_representation.external_data import RepositorySnap
    from dagster._serdes import serialize_value

    (folder / "__init__.py").touch()
    (folder / "defs" / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{folder.name}"\n'
    )
    sys.path.insert(0, str(folder.parent))
    definitions = dg.load_from_defs_folder(path_within_project=folder)
    repository = definitions.get_repository_def()
    whole = RepositorySnap.from_def(repository)
    load_cpu_s = time.process_time()
    first = RepositorySnap.from_def(repository, defer_snapshots=True)
    return {
        "load_cpu_s": round(load_cpu_s, 2),
        "jobs": len([job for job in repository.get_all_jobs() if not job.name.startswith("__")]),
        "schedules": len(repository.schedule_defs),
        "sensors": len(repository.sensor_defs),
        "bytes_first": len(serialize_value(first)),
        "bytes_whole": len(serialize_value(whole)),
    }


def until_work(folder: Path) -> float:
    """Launch the run of one pipeline of a folder; return the CPU seconds of its process from its start until its step begins to work."""
    (folder / "definitions.py").write_text(LOCATION)
    data = folder / "data" / "orders_000"
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:  # the run goes on
        home = Path(made)
        (home / "dagster.yaml").write_text(INSTANCE)
        noted = home / "noted"
        environment = os.environ | {
            "DAGSTER_HOME": made,
            "NOTED": str(noted),
            "EBBTIDE_ROOT": str(home / "root"),
            "PYTHONPATH": str(folder.parent),
        }
        launch = [sys.executable, "-m", "dagster", "job", "launch", "-m", f"{folder.name}.definitions", "-j", data.name]
        with (home / "log").open("w") as log:
            subprocess.run(launch, env=environment, cwd=folder, check=True, stdout=log, stderr=log)
        end = time.monotonic() + WORKS_WITHIN_S
        while not noted.exists() or not noted.read_text():
            if time.monotonic() > end:
                raise TimeoutError((home / "log").read_text())
            time.sleep(0.1)
        return float(noted.read_text())


if __name__ == "__main__":
    sys.exit(main())
