"""The Python in the pages runs as it stands; the tutorials' commands print what the pages say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from frame.installing import EXAMPLES, install

from ebbtide import UpsertPipeline
from ebbtide.formats import TOOLS
from ebbtide.testing import MemoryPipeline

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""Commands, and the output of the commands before; commands fenced as `console` are not run."""
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
NEED_SPARK = {"sql-and-views.md"}
PAGES_FOLLOWED = pytest.mark.group("warm")  # they share the programs
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


def run(code, folder, programs=Path(sys.executable).parent):
    done = subprocess.run(
        [programs / "python", "-W", "error::SyntaxWarning", "-c", code],
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


@pytest.fixture(scope="module", params=["warm", pytest.param("apart", marks=pytest.mark.grid)])
def programs(request):
    """Folder of the programs that pages call: those that are installed, or the same without the seconds of their start."""
    if request.param == "apart":
        return Path(sys.executable).parent
    return request.getfixturevalue("warm_programs")


def follow(page, folder, programs, java_home, **variables):
    """Run the commands of a page one after the other, as a reader would."""
    blocks = list(commands(page))
    script = "".join(f"{{\n{text}}} > {folder}.{number} 2>&1\n" for number, (text, _) in enumerate(blocks))
    folder.mkdir()
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": os.environ["HOME"], "JAVA_HOME": java_home, **variables}
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
        assert said is None or alike(output, folder).rstrip() == alike(said, folder).rstrip(), text


@PAGES_FOLLOWED
@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("0 is 0", 1, '"is" with'),
    ],
)
def test_program_ends_as_it_does_apart(programs, tmp_path, code, status, said):
    command = [programs / "python", "-W", "error::SyntaxWarning", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert (done.returncode, said in done.stderr) == (status, True)


def test_pages_have_python():
    assert {"docs/reference/materializer.md", "docs/reference/state.md"} <= set(WITH_PYTHON)


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_snippets_name_nothing_that_is_not_defined(page):
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-"],
        input=WITH_PYTHON[page], check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@PAGES_FOLLOWED
@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page not in ON_SPARK])
def test_snippets_run(page, programs, tmp_path):
    run(WITH_PYTHON[page], tmp_path, programs)


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


@PAGES_FOLLOWED
@pytest.mark.parametrize("page", ON_SPARK)
def test_snippets_on_spark_import_what_is_there(page, programs, tmp_path):
    imports = "\n".join(line for line in WITH_PYTHON[page].splitlines() if line.startswith(("from ", "import ")))
    run(imports, tmp_path, programs)


@PAGES_FOLLOWED
@pytest.mark.parametrize(
    "page", [page for page in TUTORIALS if page.name not in NEED_SPARK], ids=lambda page: page.stem
)
def test_tutorial_prints_what_it_says_without_java(page, programs, tmp_path):
    follow(page, tmp_path / "shop", programs, java_home=str(tmp_path / "nowhere"))


@PAGES_FOLLOWED
@pytest.mark.parametrize("example", [path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")])
def test_example_prints_what_its_readme_says_without_java(example, programs, tmp_path, shell):
    install(tmp_path / "site", shell, example)
    path = os.pathsep.join([str(tmp_path / "site"), str(EXAMPLES / example)])
    page = EXAMPLES / example / "README.md"
    follow(page, tmp_path / "shop", programs, java_home=str(tmp_path / "nowhere"), PYTHONPATH=path)


@pytest.mark.grid
@pytest.mark.parametrize("page", [page for page in TUTORIALS if page.name in NEED_SPARK], ids=lambda page: page.stem)
def test_tutorial_on_spark_prints_what_it_says(page, tmp_path):
    follow(page, tmp_path / "shop", Path(sys.executable).parent, java_home=os.environ.get("JAVA_HOME", ""))


def samples():
    """Each sample of the formats' page with the fields of the spec below it."""
    text = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    found = re.findall(r"^```json\n(.*?)^```\n\n```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(found) == text.count("```json") == text.count("```yaml")
    return found


@pytest.mark.parametrize(("record", "fields"), samples())
def test_samples_of_formats_become_rows(record, fields):
    pipeline = MemoryPipeline(UpsertPipeline(name="orders", **yaml.safe_load(fields)))
    pipeline.step(record.encode().splitlines())
    assert ([(row["id"], row["status"]) for row in pipeline.rows()], pipeline.quarantine) == ([(1, "new")], [])


def test_page_of_formats_has_a_sample_of_each_tool():
    types = {yaml.safe_load(fields)["format"]["type"] for _, fields in samples()}
    assert types == {"debezium", "plain", "mapped", *TOOLS}
