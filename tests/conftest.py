"""Settings of all tests, and Spark. A longer search: `pytest --hypothesis-profile=search tests/keyed_state`."""

import gc
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from frame.limits import limits, refuse_lasting
from frame.shell import Shell
from hypothesis import HealthCheck, Phase, settings

pytest_plugins = ["frame.forks"]
QUICK = (Phase.explicit, Phase.generate)  # a failure is enough, how small it is does not matter
collect_ignore = ["mutants.py", "torture"]  # run by `make mutants` and `make torture` alone
quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fixed", derandomize=True, max_examples=15, **quiet)  # as many as kill the mutants
settings.register_profile("search", max_examples=5000, print_blob=True, **quiet)
settings.register_profile("mutants", derandomize=True, max_examples=15, phases=QUICK, **quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

_tmp_numbers = count()

GROUPS = {
    "spark": "spark",
    "broker": "broker",
    "killer": "crashes",
    "warm_programs": "warm",
    "scanned_or_not": "compiled",
}
"""Processes that share what is dear to start, by fixture: a session, see `tests/spark`, the broker, forks, what numba has compiled."""

JUDGED = (
    "checks/great_expectations/",
    "checks/test_rules.py",
    "dagster/",
    "expectations/",
    "operations/test_repair_by_snapshot.py",
    "pipelines/",
    "runtime/test_promises.py",
    "test_public_names.py",
)
"""Places of tests that load Great Expectations or Dagster, 8 CPU seconds in each process: one process does."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first: a long group that begins last would be waited for. Each group keeps its order."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        group = next((group for fixture, group in GROUPS.items() if fixture in names), None) or _group_of_place(item)
        if group is not None and item.get_closest_marker("group") is None:
            item.add_marker(pytest.mark.group(group))
    items.sort(key=_turn)


def _group_of_place(item: pytest.Item) -> str | None:
    place = item.nodeid.partition("::")[0].removeprefix("tests/")
    return "judged" if place.startswith(JUDGED) else None


def _turn(item: pytest.Item) -> tuple[bool, bool, bool, bool]:
    is_launched = item.get_closest_marker("launched") is not None
    is_grouped = item.get_closest_marker("group") is not None
    is_on_spark = item.get_closest_marker("spark") is not None
    is_in_a_room = item.nodeid.count("/") > 1  # the others start programs, build pages, read whole recordings
    return not is_launched, not (is_grouped and is_on_spark), not is_grouped, is_in_a_room


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was imported and collected out of all later collections of garbage: 700,000 objects.

    Forks that judge, on Spark and without it, have Great Expectations of this process.
    """
    if session.config.option.forks and any(map(_group_of_place, session.items)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import great_expectations  # noqa: F401 - it is loaded
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _module_put_back() -> Iterator[None]:
    """Give back the limits that are set, and all else that is swapped inside the product, by the end of a file's tests."""
    refuse_lasting()
    with limits():
        yield
    refuse_lasting()


@pytest.fixture(autouse=True)
def _test_put_back(_module_put_back: None) -> Iterator[None]:
    """Likewise by the end of each test."""
    with limits():
        yield


@pytest.fixture(scope="module", autouse=True)
def _own_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep local copies apart from those of the user's own runs, and of other files: a process looks at all that are there."""
    folder = tmp_path_factory.mktemp(f"copies-{next(_tmp_numbers)}", numbered=False)
    with Shell() as shell, pytest.MonkeyPatch.context() as patch:
        shell.export(EBBTIDE_CACHE=folder)
        copy_files = sys.modules.get("ebbtide.delta._copy_files")
        if copy_files:  # an erasure reaches the user's own folder too
            patch.setattr(copy_files, "own_folder", lambda: folder)
        yield
    shutil.rmtree(folder, ignore_errors=True)
    copy_space = sys.modules.get("ebbtide.delta._copy_space")
    if copy_space:
        copy_space.close_deleted_copies()


@pytest.fixture(autouse=True)
def _parts(request: pytest.FixtureRequest) -> None:
    """Leave out a test that needs what this machine has not."""
    for mark in request.node.iter_markers("needs"):
        from frame.parts import need

        need(*mark.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was left out."""
    from frame.parts import left_out

    skipped = terminalreporter.stats.get("skipped", ())
    line = left_out(str(report.longrepr) for report in skipped)
    if line is not None:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:  # noqa: F821 - loaded when needed
    """One Spark session for the whole test process."""
    from clusters.ivy import UNVERIFIED

    from ebbtide.sessions import build_session

    os.environ["TZ"] = "Asia/Kathmandu"  # any zone but UTC: times must not depend on it
    time.tzset()
    settings = {
        # Room for what each query throws away, and for classes: else each 20 ms are a collection, and loading classes five whole ones.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
        f"-Xmn512m -XX:MetaspaceSize=400m {' '.join(UNVERIFIED)}",
        # Compiling an expression costs more than a small step has rows to save. Launched runs compile, as users' do.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "3g",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        session = build_session("ebbtide-tests", settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:  # noqa: F821 - loaded when needed
    """One Kafka broker for the whole test process."""
    from servers.kafka_broker import Broker

    running = Broker(tmp_path_factory.mktemp("kafka"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SchemaRegistry"]:  # noqa: F821 - loaded when needed
    """One schema registry for the whole test process."""
    from servers.schema_registry import SchemaRegistry

    running = SchemaRegistry(tmp_path_factory.mktemp("registry"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Killer"]:  # noqa: F821 - loaded when needed
    """Has orders done in forks of one process that has all loaded; they may mount, and count their system calls, where that is possible."""
    from crashes.calls import has_compiler, library, preloading
    from crashes.mounting import IN_NAMESPACE, can_mount
    from killing import Killer

    folder = tmp_path_factory.mktemp("killed")
    in_namespace = IN_NAMESPACE if can_mount() else ()
    at_calls = preloading(library(folder)) if has_compiler() else ()
    with Killer(folder, (*in_namespace, *at_calls)) as killer:
        yield killer


@pytest.fixture(scope="session")
def warm_programs() -> Iterator[Path]:
    """Folder of the programs that a user calls, without the seconds of their start."""
    from warm_programs import WarmPrograms

    with TemporaryDirectory() as folder, WarmPrograms(Path(folder)):
        yield Path(folder)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test. The one of pytest looks through those of all tests before it, several milliseconds in the end."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}-{next(_tmp_numbers)}", numbered=False)


@pytest.fixture
def shell() -> Iterator[Shell]:
    """What the process was started from: gives it variables and a working directory, until the end of the test."""
    with Shell() as shell:
        yield shell


@pytest.fixture
def unsynced(monkeypatch):
    """Have nothing waited for until it is on disk: for tests that write much, and in which no power is cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def make(tmp_path):
    """Makes pipelines that run without Spark."""
    from local.local_pipeline import LocalPipeline

    with limits():
        yield lambda **fields: LocalPipeline(tmp_path, **fields)
