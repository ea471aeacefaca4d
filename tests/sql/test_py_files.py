"""Files of Python code that a session brings: which are usable, where they are imported, and when their code is another."""

import sys
import zipfile

import pytest
import yaml

from ebbtide import load
from ebbtide.errors import ConfigError
from ebbtide.sql import Target

SPEC = {
    "name": "shown",
    "source": {"path": "in"},
    "format": {"type": "plain"},
    "schema": "id BIGINT, v STRING",
    "key": ["id"],
    "order": "arrival",
    "transform": {
        "schema": "id BIGINT, v STRING",
        "key": ["id"],
        "select": {"id": "id", "v": "shout(v)"},
        "functions": {"shout": "in_an_archive:shout"},
    },
}


@pytest.fixture
def home(tmp_path):
    (tmp_path / "defs" / "shown").mkdir(parents=True)
    (tmp_path / "defs" / "shown" / "defs.yaml").write_text(
        yaml.safe_dump({"type": "ebbtide.UpsertPipeline", "attributes": SPEC})
    )
    yield tmp_path
    sys.path[:] = [place for place in sys.path if not place.startswith(str(tmp_path))]
    forget()


def forget():
    for name in [name for name in sys.modules if name.startswith("in_an_archive")]:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def opened(home, files):
    return Target(str(home / "root"), str(home / "defs"), py_files=files).open()


def archive(home, end, at=(2026, 1, 1, 0, 0, 0)):
    path = home / "code.zip"
    with zipfile.ZipFile(path, "w") as written:
        for name, text in (
            (
                "in_an_archive/__init__.py",
                "from in_an_archive.ends import END\n\ndef shout(v: str) -> str:\n    return v + END\n",
            ),
            ("in_an_archive/ends.py", f"END = {end!r}\n"),
        ):
            written.writestr(zipfile.ZipInfo(name, at), text)
    return str(path)


def test_function_of_an_archive_is_declared_and_its_code_is_part_of_a_spec(home):
    contracts = []
    for end, at in (("!", (2026, 1, 1, 0, 0, 0)), ("!", (2026, 2, 2, 0, 0, 0)), ("?", (2026, 1, 1, 0, 0, 0))):
        session = opened(home, archive(home, end, at))
        assert session.execute("SHOW PIPELINES").page(0, 60).rows[0][0] == "shown"
        session.close()
        contracts.append(load(home / "defs" / "shown").identity["transform"])
        forget()
    assert contracts[0] == contracts[1] != contracts[2]


@pytest.mark.parametrize("name", ["code", "code.whl", "missing.zip", "code.zip,,missing.py"])
def test_file_that_is_not_there_or_of_another_kind_is_refused(home, name):
    archive(home, "!")
    (home / "code").mkdir()
    (home / "code.whl").touch()
    files = ",".join(str(home / each) if each else "" for each in name.split(","))
    with pytest.raises(ConfigError, match=r"A file of --py-files is not usable.* Allowed: files that are there, \.py"):
        opened(home, files)
