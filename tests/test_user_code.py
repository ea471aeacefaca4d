"""A user's function reaches a process that cannot import from its project."""

import pickle
import subprocess
import sys
from pathlib import Path

import pydantic.fields
import pytest

import ebbtide.functions
from ebbtide.user_code import Shipped

FILES = {
    "shipped/__init__.py": "",
    "shipped/functions.py": """
import shipped.helper
from . import rates
from .deep.numbers import DOZEN

class Price:
    def total(self, n):
        from shipped_late import surcharge  # only met when it runs
        return surcharge(shipped.helper.twice(n) * rates.RATE + DOZEN)
""",
    "shipped/helper.py": "import shipped.functions\n\ndef twice(n):\n    return 2 * n\n",
    "shipped/rates.py": "import json\n\nRATE = 10\n",
    "shipped/deep/numbers.py": "DOZEN = 12\n",
    "shipped/unused.py": "raise RuntimeError\n",
    "shipped_late.py": "def surcharge(n):\n    return n + 1\n",
}
UNPACK = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).unpack().total(5))"


@pytest.fixture
def project(tmp_path, shell):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    shell.put_on_path(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("shipped")]:
        del sys.modules[name]


def test_function_runs_where_its_project_cannot_be_imported(project):
    from shipped.functions import Price

    shipped = Shipped.of(Price(), "shipped.functions")
    assert sorted(shipped.sources) == [
        "shipped",
        "shipped.deep",
        "shipped.deep.numbers",
        "shipped.functions",
        "shipped.helper",
        "shipped.rates",
        "shipped_late",
    ]
    command = [sys.executable, "-c", UNPACK]
    done = subprocess.run(command, input=pickle.dumps(shipped), capture_output=True, check=True, cwd="/")
    assert done.stdout.decode().strip() == "113"
    assert shipped.unpack().total(5) == 113, "at home it is the module itself"
    assert type(shipped.unpack()) is Price


def test_changed_module_is_made_again_in_a_process_that_has_the_older_one(project):
    from shipped.functions import Price

    before = Shipped.of(Price(), "shipped.functions")
    rates = before.sources["shipped.rates"]
    after = type(before)({**before.sources, "shipped.rates": rates._replace(text="RATE = 20\n")}, before.pickled)
    twice = "import pickle, sys; print([each.unpack().total(5) for each in pickle.loads(sys.stdin.buffer.read())])"
    done = subprocess.run(
        [sys.executable, "-c", twice],
        input=pickle.dumps([before, after, before]),
        capture_output=True,
        check=True,
        cwd="/",
    )
    assert done.stdout.decode().strip() == "[113, 213, 113]"


@pytest.mark.parametrize("module", [pydantic.fields, ebbtide.functions], ids=lambda module: module.__name__)
def test_what_is_installed_is_not_sent(module):
    assert Shipped.project_sources(module.__name__, Path(module.__file__)) == {}
