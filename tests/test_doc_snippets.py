"""The Python in the pages runs as it stands; the tutorials' commands print what the pages say."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ebbtide import UpsertPipeline
from ebbtide.testing import MemoryPipeline

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""Commands, and the output of the commands before; commands fenced as `console` are not run."""
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
NEED_SPARK = {"sql-and-views.md"}
HOME = "/home/you/shop"
"""Stands in the pages for the reader's folder."""
VARYING = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00)?", "TIME"),
    (r"\d+\.\d s", "SECONDS"),
    (r" +\n", "\n"),
    (r"  +", "  "),
]


def snippets(path):
    """A page's Python, from the top; what a snippet defines the next ones may use."""
    return "\n".join(FENCE.findall(path.read_text(encoding="utf-8")))


WITH_PYTHON = {path.relative_to(ROOT).as_posix(): code for path in PAGES if (code := snippets(path))}
ON_SPARK = [page for page, code in WITH_PYTHON.items() if "build_session(" in code]


def run(code, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", code],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def commands(page):
    """Each block of commands of a page, with the output that the page shows; None: it shows none."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for number, (language, text) in enumerate(blocks):
        if language == "sh":
            after = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            yield text, after[1] if after[0] == "text" else None


def alike(text, folder):
    """A command's output without what differs from run to run."""
    text = text.replace(str(folder), HOME)
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text


def follow(page, folder, java_home):
    """Run the commands of a page one after the other, as a reader would."""
    blocks = list(commands(page))
    script = "".join(f"{{\n{text}}} > {folder}.{number} 2>&1\n" for number, (text, _) in enumerate(blocks))
    folder.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": os.environ["HOME"], "JAVA_HOME": java_home}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    printed = [Path(f"{folder}.{number}") for number in range(len(blocks))]
    outputs = [path.read_text(encoding="utf-8") for path in printed if path.exists()]
    assert done.returncode == 0, outputs[-1] + done.stderr
    for (text, said), output in zip(blocks, outputs, strict=True):
        assert said is None or alike(output, folder) == alike(said, folder), text


def test_pages_have_python():
    assert {"docs/reference/materializer.md", "docs/reference/state.md"} <= set(WITH_PYTHON)


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_snippets_name_nothing_that_is_not_defined(page):
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-"],
        input=WITH_PYTHON[page], check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page not in ON_SPARK])
def test_snippets_run(page, tmp_path):
    run(WITH_PYTHON[page], tmp_path)


@pytest.mark.grid
@pytest.mark.parametrize("page", ON_SPARK)
def test_snippets_run_on_spark(page, tmp_path):
    """In a project with the shop's pipelines, and a tenth of its records."""
    shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    capture = tmp_path / "data" / "shop" / "capture"
    capture.mkdir(parents=True)
    for path in sorted((ROOT / "data" / "shop" / "capture").iterdir())[:4]:
        shutil.copy(path, capture)
    run(WITH_PYTHON[page], tmp_path)


@pytest.mark.parametrize("page", ON_SPARK)
def test_snippets_on_spark_import_what_is_there(page, tmp_path):
    imports = "\n".join(line for line in WITH_PYTHON[page].splitlines() if line.startswith(("from ", "import ")))
    run(imports, tmp_path)


@pytest.mark.parametrize(
    "page", [page for page in TUTORIALS if page.name not in NEED_SPARK], ids=lambda page: page.stem
)
def test_tutorial_prints_what_it_says_without_java(page, tmp_path):
    follow(page, tmp_path / "shop", java_home=str(tmp_path / "nowhere"))


@pytest.mark.grid
@pytest.mark.parametrize("page", [page for page in TUTORIALS if page.name in NEED_SPARK], ids=lambda page: page.stem)
def test_tutorial_on_spark_prints_what_it_says(page, tmp_path):
    follow(page, tmp_path / "shop", java_home=os.environ.get("JAVA_HOME", ""))


def samples():
    """Each sample of the formats' page, with the fields of the spec above it."""
    text = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(yaml|json)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(fields, record) for (_, fields), (_, record) in zip(blocks[::2], blocks[1::2], strict=True)]


@pytest.mark.parametrize(("fields", "record"), samples())
def test_samples_of_formats_become_rows(fields, record):
    pipeline = MemoryPipeline(UpsertPipeline(name="orders", **yaml.safe_load(fields)))
    pipeline.step(record.encode().splitlines())
    assert ([(row["id"], row["status"]) for row in pipeline.rows()], pipeline.quarantine) == ([(1, "new")], [])


def test_conversions_of_formats_make_plain_rows():
    text = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```jq\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    records = [
        '{"database": "shop", "table": "orders", "type": "insert", "ts": 5, "xid": 7, "data": {"id": 1}}',
        '{"data": {"id": 1}, "metadata": {"operation": "insert", "timestamp": "2026-01-01T00:00:00Z"}}',
        '{"Op": "I", "id": 1}',
        '{"op": "insert", "id": 1}',
    ]
    for program, record in zip(programs, records, strict=True):
        if shutil.which("jq") is None:
            pytest.skip("jq is not installed")
        made = json.loads(
            subprocess.run(["jq", "-c", program], input=record, check=True, capture_output=True, text=True).stdout
        )
        assert (made["kind"], made["row"]["id"]) == ("+I", 1)
