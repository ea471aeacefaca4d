"""Files that are rewritten after they were read: refused, and by sequence read again where that is accepted."""

import random

import pytest
from local.local_pipeline import up

from ebbtide.errors import ConfigError, FileChangedError

ACCEPTED = {"accept_changed_files": True}


def rewrite(pipeline, name, *lines):
    (pipeline.source / name).write_text("".join(line + "\n" for line in lines))


def test_rewritten_file_is_read_again_by_sequence_and_its_size_is_noted(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 5))
    rewrite(pipeline, "0000.jsonl", up(1, 1), up(2, 2), up(3, 3))
    with pytest.raises(FileChangedError, match="ebbtide run --accept-changed-files"):
        pipeline.run()
    [step, *_] = pipeline.run(**ACCEPTED).steps
    assert (pipeline.rows(), step.records, step.counts["inserted"]) == ({1: 5, 2: 2, 3: 3}, 3, 1)
    assert pipeline.run().steps == [] or pipeline.rows() == {1: 5, 2: 2, 3: 3}
    pipeline.do("compaction")
    pipeline.read(up(4, 4))
    assert pipeline.rows() == {1: 5, 2: 2, 3: 3, 4: 4}
    rewrite(pipeline, "0000.jsonl", up(1, 1))
    with pytest.raises(FileChangedError, match=r"0000\.jsonl with"):
        pipeline.run()
    pipeline.run(**ACCEPTED)
    assert pipeline.rows() == {1: 5, 2: 2, 3: 3, 4: 4}


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_all_records_whatever_is_rewritten_and_when(make, seed):
    chance = random.Random(seed)
    pipeline = make()
    files = [[] for _ in range(3)]
    right = {}
    for number in range(1, 13):
        at = chance.randrange(3)
        id_, kind = chance.randrange(4), chance.choice(["+U", "+U", "-D"])
        files[at].append(up(id_, number, kind))
        right[id_] = None if kind == "-D" else number
        if chance.random() < 0.5 or number == 12:
            for name, lines in enumerate(files):
                rewrite(pipeline, f"{name:04d}.jsonl", *lines)
            pipeline.run(**ACCEPTED)
    assert pipeline.rows() == {id_: n for id_, n in right.items() if n is not None}


@pytest.mark.parametrize("order", ["arrival", "upsert"])
def test_without_a_sequence_reading_again_is_refused_before_anything_is_read(make, order):
    pipeline = make(order=order)
    pipeline.read(up(1, 1))
    rewrite(pipeline, "0000.jsonl", up(1, 1), up(2, 2))
    with pytest.raises(ConfigError, match=r"cannot read changed files again\. .* order: sequence"):
        pipeline.run(**ACCEPTED)
    assert pipeline.last.step == 1
