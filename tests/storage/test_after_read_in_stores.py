"""Files leave a folder of an object store once they are read, for another one there or for a local archive; a restored state reads them there."""

import shutil

import pytest
from frame.limits import set_limits
from local.local_pipeline import up

from ebbtide.storage import Location


@pytest.mark.parametrize("is_local", [False, True])
def test_files_leave_and_are_read_again_by_a_restored_state(make, root, tmp_path, is_local):
    set_limits(retention="interval 0 hours")
    pipeline = make()
    source, archive = Location(root) / "in", Location(tmp_path if is_local else root) / "archive"
    pipeline.spec = pipeline.with_fields(source={"path": source, "after_read": {"move_to": archive, "after": "0s"}})
    for number in (1, 2, 3):
        (source / f"{number}.jsonl").replace_bytes(f"{up(number, number)}\n".encode())
        pipeline.run()
        if number == 1:
            shutil.copytree(pipeline.home, pipeline.home.with_name("earlier"))
    pipeline.act("vacuum")
    assert ([file.name for file in source.walk()], [file.name for file in archive.walk()]) == (
        [],
        ["1.jsonl", "2.jsonl", "3.jsonl"],
    )
    pipeline.run()
    shutil.rmtree(pipeline.home)
    shutil.copytree(pipeline.home.with_name("earlier"), pipeline.home)
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
