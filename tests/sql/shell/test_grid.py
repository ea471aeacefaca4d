import pyarrow as pa
import pytest
from memory_session import MemorySession

from ebbtide.sql.results import Page, Result, ResultColumn, ResultKind
from ebbtide.sql.shell.cells import width
from ebbtide.sql.shell.feed import Feed, Rows
from ebbtide.sql.shell.grid import Grid, Mode

N_ROWS = 50


def grid_of(rows, columns=("id", "name"), *, kind=ResultKind.ROWS, following=None, height=12, wide=60):
    """Make a grid whose rows are there already; nothing reads more."""
    result = Result(kind, tuple(ResultColumn(name) for name in columns))
    grid = Grid(Feed(None, result, [Page(rows, following)], lambda: None))
    grid.height, grid.width = height, wide
    return grid


@pytest.fixture
def grid():
    return grid_of([[number, f"name {number}"] for number in range(N_ROWS)])


def texts(grid):
    return ["".join(text for _, text in line).rstrip() for line in grid.lines()]


def test_lines_are_as_many_and_as_wide_as_the_terminal(grid):
    for tall, wide in ((12, 60), (3, 10), (2, 4), (60, 200)):
        grid.height, grid.width = tall, wide
        shown = ["".join(text for _, text in line) for line in grid.lines()]
        assert len(shown) == tall
        assert max(map(width, shown)) <= wide


def test_cursor_stays_on_rows_and_in_sight(grid):
    for moves, cursor in ((-5, 0), (9, 9), (5, 14), (1000, N_ROWS - 1), (-3, N_ROWS - 4)):
        grid.move(moves)
        shown = texts(grid)
        assert grid.cursor == cursor
        assert any(f"name {cursor}" in line for line in shown[1:-1])
        [marked] = [line for line in grid.lines() if line[0][0] == "class:cursor"]
        assert f"name {cursor} " in marked[0][1]


def test_search_goes_on_behind_the_match_and_begins_anew_at_the_end(grid):
    grid.term = "NAME 4"
    grid.search()
    found = [texts(grid) and grid.cursor]
    for _ in range(12):
        grid.search_next()
        texts(grid)
        found.append(grid.cursor)
    assert found == [4, *range(40, 50), 4, 40]


def test_search_without_a_match_says_so_and_stays(grid):
    grid.move(5)
    grid.term = "nowhere"
    grid.search()
    assert "Not found: 'nowhere'" in texts(grid)[-1]
    assert grid.cursor == 5


def test_search_finds_rows_that_are_not_read_yet():
    grid = grid_of([[1, "a"]], following=1, wide=100)
    grid.term = "late"
    grid.search()
    assert "Searching 'late'" in texts(grid)[-1]
    grid.feed._take(Page([[2, "b"], [3, "late"]]))
    texts(grid)
    assert grid.cursor == 2


def test_row_is_shown_whole_with_long_cells_broken():
    grid = grid_of([[1, "x" * 100 + "\x1b[31m" + "東" * 30]], wide=40)
    grid.open_row()
    shown = texts(grid)
    assert grid.mode is Mode.ROW
    value = "".join(line.removeprefix("name").strip() for line in shown[1:-1])
    assert value == "x" * 100 + "\\x1b[31m" + "東" * 30
    grid.open_row()
    assert grid.mode is Mode.ROWS


def test_columns_to_the_right_are_reached(grid):
    grid.move_columns(1)
    assert texts(grid)[0] == "name"
    grid.move_columns(10)
    assert texts(grid)[0] == "name"
    grid.move_columns(-10)
    assert texts(grid)[0].split() == ["id", "name"]


def test_result_without_rows_is_shown_and_moved_in():
    grid = grid_of([])
    for act in (grid.home, grid.end, grid.open_row, grid.search_next, lambda: grid.move(1)):
        act()
        assert "no rows" in texts(grid)[-1]
    assert grid.mode is Mode.ROWS


def test_changes_are_followed_until_the_cursor_is_moved():
    grid = grid_of([["+I", number] for number in range(20)], ("op", "step"), kind=ResultKind.CHANGES, following=1)
    texts(grid)
    assert grid.cursor == 19
    grid.feed._take(Page([["-D", 99]], 2))
    assert "99" in texts(grid)[-2]
    grid.move(-1)
    grid.feed._take(Page([["-D", 100]], 3))
    texts(grid)
    assert grid.cursor == 19
    grid.end()
    texts(grid)
    assert grid.cursor == 21


def test_row_alone_is_shown_on_while_changes_push_it_out():
    grid = grid_of([["+I", 0]], ("op", "step"), kind=ResultKind.CHANGES, following=1)
    grid.feed.rows = Rows(grid.feed.rows.columns, 10)
    grid.feed._take(Page([["+I", number] for number in range(10)], 1))
    grid.home()
    grid.open_row()
    grid.feed._take(Page([["-D", number] for number in range(30)], 2))
    assert texts(grid)[:2] == ["op    +I", "step  0"]
    grid.open_row()
    texts(grid)
    assert grid.cursor == 30


def test_rows_hold_the_last_ones_under_their_numbers():
    rows = Rows((), most=5)
    rows.append([[number] for number in range(3)])
    assert (rows.first, rows.end, rows.window(1, 5)) == (0, 3, [[1], [2]])
    rows.append([[number] for number in range(3, 9)])
    assert (rows.first, rows.end) == (4, 9)
    assert rows.window(6, 2) == [[6], [7]]
    assert rows.window(0, 6) == [[4], [5]]
    assert rows.window(9, 5) == []


def test_session_in_memory_gives_pages_as_the_protocol_says():
    session = MemorySession({"t": pa.table({"id": [1, 2, 3]})}, page_rows=2)
    operation = session.execute("SELECT * FROM t")
    assert [column.name for column in operation.result().columns] == ["id"]
    first = operation.page()
    assert operation.page(first.next) == Page([[3]])
    assert operation.page() == first
