"""The Python in the pages runs as it stands."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


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


def test_pages_have_python():
    assert {"README.md", "docs/reference/materializer.md", "docs/reference/state.md"} <= set(WITH_PYTHON)


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
