"""Class-data archives: used where there is one, written where there is none, named only when they are whole."""

import os
import time
from pathlib import Path

import pytest

from ebbtide.sessions._class_archive import ClassArchive, archive_path

VARIABLE = "SPARK_SUBMIT_OPTS"


@pytest.fixture(autouse=True)
def cache(tmp_path, shell):
    shell.export(XDG_CACHE_HOME=tmp_path / "cache")
    shell.unset("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", VARIABLE)
    return tmp_path / "cache" / "ebbtide"


def made(path, age_s):
    path.write_bytes(b"")
    at = time.time() - age_s
    os.utime(path, (at, at))
    return path


def written(archive):
    archive.unnamed.write_bytes(b"classes")
    return archive


def test_archive_is_written_once_and_used_from_then_on():
    first = ClassArchive.of_this_machine(may_write=True)
    assert first.options[-1] == f"-XX:ArchiveClassesAtExit={first.unnamed}"
    written(first).keep(0)
    assert archive_path().read_bytes() == b"classes"

    later = ClassArchive.of_this_machine(may_write=True)
    assert later.options[-1] == f"-XX:SharedArchiveFile={archive_path()}"
    later.keep(0)
    assert archive_path().exists()


def test_archive_of_a_jvm_that_failed_is_deleted():
    archive = written(ClassArchive.of_this_machine(may_write=True))
    archive.keep(1)
    assert not archive.unnamed.exists()
    assert not archive_path().exists()


def test_three_archives_and_no_leftovers_stay(cache):
    archive = written(ClassArchive.of_this_machine(may_write=True))
    for age_s in range(1, 5):
        made(cache / f"classes-{age_s}.jsa", age_s)
    made(cache / "classes-1.4711", age_s=7_200)
    being_written = made(cache / "classes-1.4712", age_s=60)
    archive.keep(0)
    left = {path.name for path in cache.iterdir()}
    assert left == {archive_path().name, "classes-1.jsa", "classes-2.jsa", being_written.name}


def test_another_java_has_another_archive(tmp_path, shell):
    before = archive_path()
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    java.chmod(0o700)
    shell.export(JAVA_HOME=tmp_path / "java")
    assert archive_path() != before


def test_first_start_writes_none():
    assert ClassArchive.of_this_machine(may_write=False) == ClassArchive()


def test_none_is_written_where_a_folder_is_among_the_classes(tmp_path, shell):
    shell.export(SPARK_CONF_DIR=tmp_path / "conf")
    (tmp_path / "conf").mkdir()
    assert ClassArchive.of_this_machine(may_write=True).unnamed
    (tmp_path / "conf" / "spark-defaults.conf").write_text("")
    assert ClassArchive.of_this_machine(may_write=True) == ClassArchive()


def test_none_is_written_where_the_cache_cannot_be_made(tmp_path, shell):
    Path(tmp_path / "file").write_text("")
    shell.export(XDG_CACHE_HOME=tmp_path / "file")
    assert ClassArchive.of_this_machine(may_write=True) == ClassArchive()


@pytest.mark.parametrize("given", [None, "-Dx=1"])
def test_options_are_in_the_environment_of_the_launch_alone(shell, given):
    if given:
        shell.export(**{VARIABLE: given})
    with ClassArchive(("-Xa", "-Xb")).in_environment():
        assert os.environ[VARIABLE] == " ".join(["-Xa", "-Xb", *([given] if given else [])])
    assert os.environ.get(VARIABLE) == given
