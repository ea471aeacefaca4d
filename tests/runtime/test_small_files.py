"""Files that share a batch give the tables that files in batches of their own give."""

import gzip
import random

import pytest
from frame.limits import limits, set_limits
from local.local_pipeline import LocalPipeline, up
from local.quarantine_support import held
from local.support import change

from ebbtide.sources._files import joined, read_files

N_FILES = 60


def line(rng, number):
    """One line of a file: mostly a change, of few keys; some that are bad, each in its way."""
    key = rng.randrange(25)
    kind = rng.choice(["+I", "+U", "+U", "-D"])
    return rng.choice(
        [
            *[up(key, number, kind)] * 12,
            change("+I", n=number),  # without a key
            change("x", id=key, n=number),
            up(key, number)[:-3],
            "",
            '"text"',
            up(key, f"{number}"),
        ]
    )


def content(rng, first):
    """The bytes of one file: with and without a last line end, compressed, empty, of one line."""
    lines = [line(rng, first + number) for number in range(rng.choice([0, 1, 1, 1, 2, 9]))]
    text = rng.choice(["\n", "\r\n"]).join(lines).encode() + rng.choice([b"", b"\n"])
    return (".jsonl.gz", gzip.compress(text)) if rng.random() < 0.2 else (".jsonl", text)


def write(folder, seed):
    """Write the files of a seed."""
    rng = random.Random(seed)
    for number in range(N_FILES):
        end, data = content(rng, number * 10)
        (folder / f"{number:04}{end}").write_bytes(data)


def read(folder, **fields):
    """Read the files in two steps; return the tables, and what was counted."""
    source = {"max_files_per_step": N_FILES // 2}
    pipeline = LocalPipeline(folder, **fields)
    pipeline.spec = pipeline.with_fields(source=source)
    write(pipeline.source, 0)
    summary = pipeline.run()
    bad = sorted((row["reason"], row["raw"], str(row["origin"])) for row in held(pipeline))
    return sorted(pipeline.table("sink", pipeline.spec.sink_table.columns), key=str), bad, summary.totals


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["n"]}])
def test_files_that_share_a_batch_give_the_same_tables(tmp_path, order):
    together = read(tmp_path / "together", order=order)
    with limits(batch_bytes=1):
        alone = read(tmp_path / "alone", order=order)
    assert together == alone
    rows, bad, totals = together
    assert rows
    assert len(bad) == totals["quarantined"] > 20


def test_many_small_files_are_few_batches_and_a_large_one_is_not_copied(tmp_path):
    sizes = {f"{number:03}": 50 for number in range(100)} | {"large": 5_000, "last": 50}
    for name, size in sizes.items():
        (tmp_path / name).write_text("a" * size)
    asked = [(name, size, number) for number, (name, size) in enumerate(sizes.items())]
    set_limits(batch_bytes=4_000)
    batches = list(read_files(str(tmp_path))(asked))
    assert len(batches) < 10
    assert [name for batch in batches for name in batch["file"].to_pylist()] == list(sizes)
    [large] = [batch for batch in batches if "large" in batch["file"].to_pylist()]
    assert len(large) == 1
    assert next(joined([large])) is large
