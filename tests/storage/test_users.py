"""One root that several users share: each runs, maintains and checks what another one has made, and finishes what another one was killed in."""

import os
import subprocess
import sys
from itertools import cycle

import pytest
from frame.users import make_shared_root, make_users, names_of_owners, open_folder
from local.local_pipeline import LocalPipeline, up

pytestmark = pytest.mark.grid  # needs root
NAMES = ("ann", "bob")
SPEC = """
type: ebbtide.UpsertPipeline
attributes:
  name: t
  schema: "id BIGINT NOT NULL, n INT"
  key: [id]
  source: {path: in, records: value, max_files_per_step: 1}
  format: {type: plain}
  order: {sequence: [n]}
"""
KILLED = """
import os, sys
from ebbtide.runtime import _step as step
step.publish = lambda *_, **__: os.kill(os.getpid(), 9)
from ebbtide.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def folder():
    with open_folder() as made:
        yield made


@pytest.fixture
def users(folder):
    return make_users(folder, NAMES)


@pytest.fixture
def pipeline(folder):
    (folder / "defs.yaml").write_text(SPEC)
    return LocalPipeline(folder)


@pytest.fixture
def do(users, folder):
    """Returns what does a command as a user."""

    def call(name, *command, program=("-m", "ebbtide.cli")):
        asked = [
            *command,
            str(folder),
            "--root",
            str(folder / "root"),
            *(["--engine", "local"] if command == ("run",) else []),
        ]
        user = users[name]
        environment = {**os.environ, **user.environment}
        return subprocess.run(
            user.command(sys.executable, *program, *asked), env=environment, capture_output=True, text=True, check=False
        )

    return call


def test_users_of_a_group_take_turns_in_one_root(folder, users, pipeline, do):
    root = make_shared_root(folder / "root")
    for number, name in enumerate([*NAMES, *NAMES]):
        pipeline.put(up(1, number), up(number, number))
        done = do(name, "run")
        assert done.returncode == 0, done.stderr
    pipeline.put(up(1, 9))
    assert do("ann", "run", program=("-c", KILLED)).returncode == -9
    works = (["run"], ["compact"], ["check"], ["rewind", "--to-step", "2", "--apply"], ["run"], ["cleanup"])
    for name, command in zip(cycle(reversed(NAMES)), works, strict=False):
        done = do(name, *command)
        assert done.returncode == 0, (command, name, done.stderr)
    assert pipeline.rows() == {0: 0, 1: 9, 2: 2, 3: 3}
    assert names_of_owners(users, root) == set(NAMES)


def test_root_of_one_user_is_refused_to_another_by_name(folder, users, pipeline, do):
    root = folder / "root"
    root.mkdir()
    root.chmod(0o777)
    pipeline.put(up(1, 1))
    assert do("ann", "run").returncode == 0
    refused = do("bob", "run")
    assert (
        refused.returncode,
        f"Error: DiskError: User {users['bob'].id} has no right to '{root / 't'}'" in refused.stderr,
    ) == (
        1,
        True,
    ), refused.stderr
