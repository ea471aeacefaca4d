"""Lines out of bytes: every kind of line end, wherever chunks are cut, in bounded memory."""

import gzip
import io
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.sources._files import read_lines
from ebbtide.sources._lines import NoTextError, split_lines

LIMIT = 1000


def split(content, limit=LIMIT):
    return lines_of(io.BytesIO(content), limit)


def lines_of(stream, limit):
    return [line for found in split_lines(stream, limit) for line in found.to_pylist()]


class Drip:
    """Gives a few bytes at a time, as many as each read's turn says."""

    def __init__(self, content, sizes):
        self.stream, self.sizes = io.BytesIO(content), sizes

    def read(self, nbytes, /):
        size = self.sizes[0]
        self.sizes = [*self.sizes[1:], size]
        return self.stream.read(size)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_each_kind_of_line_end_ends_a_line(end):
    assert split(end.join([b"a", b"", b"b", b""])) == [b"a", b"", b"b"]


def test_line_ends_of_two_kinds_in_one_file_join_nothing():
    assert split(b"a\rb\nc\r\nd") == [b"a", b"b", b"c", b"d"]


@given(
    st.lists(st.sampled_from([b"a", b"bcd", b"\n", b"\r", b"\r\n", b"\xff"])).map(b"".join),
    st.lists(st.integers(1, 4), min_size=1),
    st.integers(1, 4),
)
def test_lines_are_the_same_wherever_chunks_are_cut_and_long_ones_are_cut(content, sizes, limit):
    whole = re.split(rb"\r\n|\r|\n", content)
    whole = whole if whole[-1] else whole[:-1]
    assert lines_of(Drip(content, sizes), limit) == [line[: limit + 1] for line in whole]


OBJECTS = [
    b'{"a":1}',
    b'{"a":"}{"}',
    b'{"a":"\\"}{","b":[{},{"c":{}}]}',
    '{"a":"\u2028\u00fc\U0001f600"}'.encode(),
    b'{"a":1e400,"b":' + b"9" * 40 + b"}",
]


@given(
    st.lists(st.tuples(st.sampled_from(OBJECTS), st.sampled_from([b"", b"\n", b"\r\n"])), min_size=1),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_objects_put_together_without_delimiters_are_a_line_each(objects, sizes):
    content = b"".join(text + end for text, end in objects)
    assert lines_of(Drip(content, sizes), LIMIT) == [text for text, _ in objects]


@given(
    st.lists(st.sampled_from([*OBJECTS, b"\n", b"{", b"}", b"}{", b"x", b'"'])).map(b"".join),
    st.lists(st.integers(1, 9), min_size=1),
    st.integers(1, 50),
)
def test_lines_with_joined_objects_are_the_same_wherever_chunks_are_cut(content, sizes, limit):
    assert lines_of(Drip(content, sizes), limit) == split(content, limit)
    assert b"".join(split(content)) == content.replace(b"\n", b"")


@pytest.mark.parametrize(
    ("line", "got"),
    [
        (b'{"a":1}{"a":2}x', [b'{"a":1}', b'{"a":2}x']),
        (b'{"a":1}{"a":', [b'{"a":1}', b'{"a":']),
        (b'{"a" 1}{"a":2}', [b'{"a" 1}{"a":2}']),
        (b'{"a":1} {"a":2}', [b'{"a":1} {"a":2}']),
        (b'1{"a":"}{"}', [b'1{"a":"}{"}']),
        (b"{" * 5000 + b"}{", [(b"{" * 5000 + b"}{")[: LIMIT + 1]]),
    ],
)
def test_line_is_split_up_to_what_is_no_object_or_has_another_behind_it(line, got):
    assert split(line) == split(line + b"\n") == got


def test_line_of_many_objects_is_split_up_to_one_that_is_too_long():
    small, long = b'{"a":1}', b'{"a":"' + b"x" * 2 * LIMIT + b'"}'
    assert lines_of(Drip(small * 1000, [100]), LIMIT) == [small] * 1000
    content = small + long + small + b"\n" + small
    assert lines_of(Drip(content, [100]), LIMIT) == [small, (long + small)[: LIMIT + 1], small]


def test_mark_of_utf_8_at_the_head_is_left_out_and_elsewhere_is_not():
    mark = b"\xef\xbb\xbf"
    assert split(mark + b"a\n" + mark + b"b\n") == [b"a", mark + b"b"]
    assert split(mark) == []


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [("utf-16-le", "FF FE"), ("utf-16-be", "FE FF"), ("utf-32-le", "FF FE"), ("utf-32-be", "00 00 FE FF")],
)
def test_mark_of_another_encoding_is_refused_by_its_bytes(encoding, mark):
    with pytest.raises(NoTextError, match=f"^it begins with {mark}, the byte order mark of UTF-16 or UTF-32$"):
        split('\ufeff{"id": 1}\n'.encode(encoding))


@pytest.mark.parametrize(("length", "got"), [(LIMIT, LIMIT), (LIMIT + 1, LIMIT + 1), (5 * LIMIT, LIMIT + 1)])
def test_line_is_whole_up_to_the_limit_and_one_byte_longer_beyond_it(length, got):
    assert [len(line) for line in split(b"x" * length + b"\ny\n")] == [got, 1]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["lf", "cr", "crlf"])
def test_line_after_one_that_is_too_long_is_not_lost(end):
    for length in range(30):
        content = b"x" * length + end + b"y"
        assert lines_of(Drip(content, [7]), limit=10) == [b"x" * min(length, 11), b"y"]


def test_line_of_200_mb_in_little_gzip_takes_a_few_mb(tmp_path):
    with gzip.open(tmp_path / "bomb.jsonl.gz", "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(b" " * 2**20)
        file.write(b'\n{"id": 1}\n')
    assert (tmp_path / "bomb.jsonl.gz").stat().st_size < 2**20
    (tmp_path / "warm.jsonl").write_bytes(b"{}")
    list(read_lines(str(tmp_path), "warm.jsonl", 0))  # what is imported on the way is not counted
    tracemalloc.start()
    found = [row["value"] for b in read_lines(str(tmp_path), "bomb.jsonl.gz", 0, 2**20) for row in b.to_pylist()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(line) for line in found] == [2**20 + 1, len('{"id": 1}')]
    assert peak < 8 * 2**20
