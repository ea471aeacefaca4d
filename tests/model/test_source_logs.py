"""Which records are of another log: by the name of its files, and by a server that writes below what was read."""

import random

import pytest

from ebbtide.model import BatchSummary, Reading, StepRules

RULES = StepRules(max_clock_jump_ms=0)


def part(number, position=4, *, base="bin", server="1", connector="shop", epoch=0, ms=None):
    place = (number, position)
    at = number * 1_000 if ms is None else ms
    log = {"connector": connector, "epoch": epoch, "base": base, "server": server}
    return {**log, "lowest": place, "highest": place, "oldest_ms": at, "newest_ms": at}


def frontier(*parts):
    return RULES.next_frontier(None, Reading(0, 0), BatchSummary().with_logs(parts))


@pytest.mark.parametrize(
    ("read", "is_other"),
    [
        (part(9, 5), False),
        (part(3), False),  # delivered again
        (part(10, base="binlog"), True),
        (part(3, base="binlog", connector="users"), False),  # of another server, which another connector reads
        (part(3, base="binlog", epoch=1), False),
        (part(3, server="2", ms=9_000), True),
        (part(3, server="2", ms=8_999), False),  # late: servers of a ring write one log
        (part(10, server="2"), False),
        (part(9, 3, server="2", ms=9_001), True),
        (part(3, server="", ms=10_000), False),  # rows of a snapshot
    ],
)
def test_records_are_of_another_log(read, is_other):
    known = frontier(part(5), part(9), part(7, server=""))  # files up to 9, of server 1
    assert bool(known.other_logs(BatchSummary().with_logs([read]))) == is_other


def test_log_without_servers_takes_any():
    known = frontier(part(9, server=""))
    assert known.other_logs(BatchSummary().with_logs([part(3, server="2", ms=9_000)])) == []


def test_parts_come_together_in_any_order():
    parts = [part(number, server=server, base=base) for number in (1, 2) for server in "12" for base in ("a", "b")]
    draw = random.Random(1)
    wholes = set()
    for _ in range(5):
        draw.shuffle(parts)
        wholes.add(BatchSummary.total([BatchSummary().with_logs(parts[:3]), BatchSummary().with_logs(parts[3:])]).logs)
    [whole] = wholes
    assert len(whole) == 4
    assert {(each.lowest, each.highest, each.newest_ms) for each in whole} == {((1, 4), (2, 4), 2_000)}


def test_no_more_logs_are_remembered_than_facts_can_hold():
    assert len(frontier(*[part(1, connector=str(number)) for number in range(105)]).logs) == 100
