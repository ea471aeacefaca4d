"""Public bug reports of other projects, played as a user would: each a file of input by step, a spec or the arguments of `ebbtide new`, and the right rows.

| field | meaning |
|---|---|
| `report` | where it was reported, what was seen |
| `specs` | step to the spec that holds from it on; none: `new` has the arguments of `ebbtide new` |
| `steps` | step to its files, copied below `data/` before the step's run |
| `remove`, `commands` | step to files that are deleted, and to commands that are run before it |
| `check` | `ebbtide check` runs at the end |
| `spark` | a check needs Spark; it has the session of the tests. Without this, a session is refused |
| `right` | allowed ends: rows of the sink, reasons in the quarantine, exit codes by step, names of checks that failed (`*`: any), what was said |
"""

import datetime as dt
import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable, QueryBuilder

from ebbtide.cli import main
from ebbtide.cli.quiet import QuietSpark

# Great Expectations warns of parameters that users' rules have.
pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated as of GX Core:DeprecationWarning")
REPORTS = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).with_name("reports").glob("*.yaml"))
}
ON_SPARK = (pytest.mark.spark, pytest.mark.group("spark"))
JUDGED = pytest.mark.group("judged")
RESERVED = ("_sequence", "_changed_by")


@dataclass
class Played:
    """The end of a report."""

    rows: list | None = None
    quarantine: dict = field(default_factory=dict)
    rc: dict = field(default_factory=dict)
    red: set = field(default_factory=set)
    output: str = ""

    def is_right(self, right):
        red = right.get("red", [])
        return (
            ("rows" not in right or self.rows == in_order(right["rows"]))
            and self.quarantine == right.get("quarantine", self.quarantine)
            and all(self.rc.get(step) in allowed(codes) for step, codes in right.get("rc", {}).items())
            and right.get("said", "") in self.output
            and (not red or bool(self.red if red == ["*"] else self.red.intersection(red)))
        )


def allowed(codes):
    return codes if isinstance(codes, list) else [codes]


def in_order(rows):
    return rows and sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def plain_value(value):
    """Return a value as the reports write it: JSON, floats as Python prints them, bytes as 0x and hexadecimal digits."""
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, float | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, dict):
        return {name: plain_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    return value


def values_of(column):
    try:
        return [plain_value(value) for value in column.to_pylist()]
    except (ValueError, OverflowError):  # a time that Python has not got
        return [str(number) for number in column.cast(pa.int64()).to_pylist()]


def rows_of(sink):
    """Read the user's columns of a sink by another reader."""
    table = DeltaTable(str(sink))
    names = [column.name for column in table.schema().fields if column.name not in RESERVED]
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    found = pa.table(QueryBuilder().register("sink", table).execute(f"SELECT {quoted} FROM sink").read_all())
    columns = [values_of(found[name]) for name in found.column_names]
    return in_order([dict(zip(found.column_names, values, strict=True)) for values in zip(*columns, strict=True)])


def marks_of(report):
    if "\nspark: true\n" in report:
        return ON_SPARK
    return JUDGED if "\ncheck: true\n" in report else ()


@pytest.fixture
def session(request):
    """The session that commands have: a start and an end for each report would cost more than all the rest."""
    is_on_spark = request.node.get_closest_marker("spark") is not None
    return request.getfixturevalue("spark") if is_on_spark else None


@pytest.fixture
def play(tmp_path, monkeypatch, shell, session):
    """Play a report in a project folder."""

    def given(_):
        assert session is not None, "The report starts Spark: give it 'spark: true'."
        return session

    monkeypatch.setattr(QuietSpark, "session", property(given))
    shell.cd(tmp_path)
    shell.export(EBBTIDE_ENGINE="local", EBBTIDE_FSYNC="off")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\nversion = "0"\n')
    played = Played()

    def ebbtide(*arguments):
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        played.output += f"$ ebbtide {' '.join(arguments)}\n{result.output}"
        return result

    def of(report):
        name = report.get("name", "orders")
        spec = Path("pipelines/defs") / name / "defs.yaml"
        for step, files in report["steps"].items():
            lay(files)
            for gone in report.get("remove", {}).get(step, ()):
                Path("data", gone).unlink()
            if step in report.get("specs", {}):
                spec.parent.mkdir(parents=True, exist_ok=True)
                spec.write_text(report["specs"][step])
            elif "new" in report and not played.rc:
                played.rc["new"] = ebbtide("new", name, *report["new"]).exit_code
                if played.rc["new"]:
                    break
            for first, *rest in report.get("commands", {}).get(step, ()):
                words = [first, rest.pop(0)] if first == "quarantine" else [first]
                ebbtide(*words, str(spec.parent), *rest)
            played.rc[str(step)] = ebbtide("run", str(spec.parent)).exit_code
        root = Path(".ebbtide") / name
        if report.get("check") and root.exists():
            result = ebbtide("check", str(spec.parent))
            played.rc["check"] = result.exit_code
            prefix = f"{name}: "
            played.red = {
                line.removeprefix(prefix).removesuffix(" failed")
                for line in result.output.splitlines()
                if line.startswith(prefix) and line.endswith(" failed")
            }
        if (root / "sink").exists():
            played.rows = rows_of(root / "sink")
        if (root / "quarantine").exists():
            shown = ebbtide("quarantine", "show", str(spec.parent), "--json").stdout
            bad = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
            reasons = [row["reason"] for row in bad if "reason" in row]
            played.quarantine = {reason: reasons.count(reason) for reason in reasons}
        return played

    return of


def lay(files):
    """Write a step's files."""
    for name, content in files.items():
        path = Path("data", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=name, marks=marks_of(text)) for name, text in REPORTS.items()],
)
def test_report_ends_right(play, text):
    report = yaml.load(text, yaml.CSafeLoader)
    played = play(report)
    assert any(map(played.is_right, report["right"])), f"{report['report']}\n{played}\n{played.output}"
