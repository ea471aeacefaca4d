"""A pipeline in a bucket, copied by the calls of `aws s3 sync` and put back as docs/how-to/backup.md says."""

import pytest
from local.local_pipeline import LocalPipeline, up
from servers.bucket_sync import client, empty, keys_below, sync

from ebbtide.errors import PausedError

pytestmark = pytest.mark.group("object_store")
LEFT_OUT = ("staged/",)


class InBucket:
    """A pipeline whose root is in a bucket, and a copy of it.

    Args:
        pipeline: It, after a run; its copy was made while it was paused.
        store: A client.
    """

    def __init__(self, pipeline, store):
        self.pipeline, self.store = pipeline, store
        _, _, folder = pipeline.root.removeprefix("s3://").partition("/")
        self.home, self.backup = f"{folder}/t", f"{folder}-backup/t"

    def back_up(self):
        self.pipeline.act("pause", reason="backup")
        sync(self.store, self.home, self.backup, LEFT_OUT)
        self.pipeline.act("resume")

    def shown(self):
        return self.pipeline.rows(), len(self.pipeline.table("quarantine", self.pipeline.plan.quarantine.schema))


@pytest.fixture
def copied(tmp_path, root):
    pipeline = LocalPipeline(tmp_path)
    pipeline.root = root
    pipeline.read(up(1, 1), "{")
    found = InBucket(pipeline, client())
    found.back_up()
    pipeline.read(up(1, 2), up(2, 1), "[")
    return found


def test_copy_of_a_paused_pipeline_is_restored_as_the_page_says(copied):
    empty(copied.store, copied.home)
    sync(copied.store, copied.backup, copied.home)
    assert copied.shown() == ({1: 1}, 1)
    with pytest.raises(PausedError):
        copied.pipeline.run()
    copied.pipeline.act("resume")
    copied.pipeline.run()
    assert copied.shown() == ({1: 2, 2: 1}, 2)


def test_copy_over_a_pipeline_that_went_on_leaves_it_as_it_is(copied):
    before = set(keys_below(copied.store, copied.home))
    sync(copied.store, copied.backup, copied.home)
    assert set(keys_below(copied.store, copied.home)) == before
    assert copied.pipeline.is_idle()
    copied.pipeline.read(up(2, 3))
    assert copied.shown() == ({1: 2, 2: 3}, 2)
