"""Which columns of a view tell the rows that a change of an input touches."""

from dataclasses import replace

import pytest

from ebbtide.views import lineage
from ebbtide.views.lineage import Joining, Lineage, Output

ORDER_ID, ORDER_CUSTOMER, TOTAL, CUSTOMER, NAME = range(5)


def orders(reading=0):
    return lineage.read(
        reading, "orders", {ORDER_ID: "order_id", ORDER_CUSTOMER: "customer_id", TOTAL: "total"}, [ORDER_ID]
    )


def customers(reading=1, first=CUSTOMER):
    return lineage.read(reading, "customers", {first: "id", first + 1: "name"}, [first])


def named_customers():
    """Customers that are told apart by both columns."""
    return lineage.read(1, "customers", {CUSTOMER: "id", NAME: "name"}, [CUSTOMER, NAME])


def taken(*columns):
    return [Output(column, column, (column,)) for column in columns]


def told(relation, *names):
    return Lineage(names or tuple(f"c{column}" for column in relation.columns), relation)


def joined(how, left=None, right=None):
    return lineage.join(left or customers(), right or orders(), how, [(CUSTOMER, ORDER_CUSTOMER)])


def test_table_is_bound_by_all_of_its_columns():
    found = told(orders(), "order_id", "customer", "total")
    assert found.columns_of("orders") == ["order_id", "customer", "total"]
    assert found.cut("orders", ["customer", "order_id"]) == (("customer_id", "order_id"),)
    assert found.key == ["order_id"]


def test_inner_join_binds_both_sides_by_what_is_equal():
    found = told(joined(Joining.INNER))
    assert found.columns_of("orders") == ["c3", "c0", "c1", "c2"]
    assert found.columns_of("customers") == ["c3", "c4", "c1"]
    assert found.common_columns(["orders", "customers"]) == ["c3", "c1"]
    assert found.cut("orders", ["c3"]) == (("customer_id",),)
    assert found.key == ["c0"]


@pytest.mark.parametrize(
    ("how", "of_customers", "of_orders"),
    [
        (Joining.LEFT, ["c3", "c4"], ["c3"]),
        (Joining.RIGHT, ["c1"], ["c0", "c1", "c2"]),
        (Joining.FULL, [], []),
        (Joining.SEMI, ["c3", "c4"], ["c3"]),
        (Joining.ANTI, ["c3", "c4"], ["c3"]),
    ],
)
def test_outer_join_binds_by_the_side_whose_rows_stay(how, of_customers, of_orders):
    found = told(joined(how))
    assert found.columns_of("customers") == of_customers
    assert found.columns_of("orders") == of_orders


def test_condition_on_columns_of_one_side_binds_nothing_across():
    relation = lineage.join(customers(), orders(), Joining.LEFT, [(CUSTOMER, NAME), (ORDER_ID, TOTAL)])
    assert told(relation).columns_of("orders") == []
    assert told(relation).reason("orders") == "a left join"


def test_equalities_are_followed_from_one_to_the_next():
    others = customers(2, first=5)
    both = lineage.join(joined(Joining.INNER), others, Joining.INNER, [])
    relation = lineage.restrict(both, [(5, ORDER_CUSTOMER)])
    assert told(relation).columns_of("customers") == ["c3", "c1", "c5"]


def test_aggregate_binds_by_what_it_is_grouped_by():
    outputs = [*taken(CUSTOMER), Output(9, None, (TOTAL,))]
    relation = lineage.group(joined(Joining.LEFT), [CUSTOMER, NAME], outputs)
    found = told(relation, "customer", "total")
    assert found.columns_of("orders") == found.columns_of("customers") == ["customer"]
    assert found.origins("total") == {("orders", "total")}
    assert found.key is None


def test_aggregate_of_all_rows_has_to_be_computed_whole():
    relation = lineage.group(orders(), [], [Output(9, None, (TOTAL,))])
    assert told(relation).columns_of("orders") == []
    assert told(relation).reason("orders") == "an aggregate that is not grouped by a column of it"


def test_window_binds_by_what_it_is_partitioned_by():
    relation = lineage.window(orders(), [ORDER_CUSTOMER], [Output(9, None, (TOTAL,))])
    assert told(relation).columns_of("orders") == ["c1"]
    assert told(relation).key == ["c0"]
    whole = lineage.window(orders(), [], [Output(9, None, (TOTAL,))])
    assert told(whole).reason("orders") == "a window that is not partitioned by a column of it"


def test_branches_bind_by_the_column_in_the_same_place():
    first = lineage.project(customers(), [Output(20, None, ()), Output(21, CUSTOMER, (CUSTOMER,))])
    second = lineage.project(orders(), [Output(30, None, ()), Output(31, ORDER_ID, (ORDER_ID,))])
    found = told(lineage.combine([first, second]), "kind", "id")
    assert found.columns_of("orders") == found.columns_of("customers") == ["id"]
    assert found.cut("orders", ["id"]) == (("order_id",),)
    assert found.key is None


def test_column_that_one_branch_computes_binds_the_other_alone():
    first = lineage.project(customers(), taken(CUSTOMER))
    second = lineage.project(orders(), [Output(31, None, (ORDER_ID,))])
    found = told(lineage.combine([first, second]), "id")
    assert (found.columns_of("customers"), found.columns_of("orders")) == (["id"], [])
    assert found.reason("orders") == "no column that identifies its rows is selected"


def test_table_read_twice_is_bound_where_both_readings_are():
    twice = lineage.join(customers(), customers(2, first=5), Joining.INNER, [(CUSTOMER, 6)])
    found = told(twice, "id", "name", "other_id", "other_name")
    assert found.columns_of("customers") == ["id", "other_name"]
    assert found.cut("customers", ["id"]) == (("id",), ("name",))


def test_table_read_in_a_subquery_of_an_expression_is_computed_whole():
    found = told(lineage.beside(customers(), [orders()]))
    assert found.columns_of("customers") == ["c3", "c4"]
    assert found.columns_of("orders") == []
    assert found.reason("orders") == "it is read in a subquery of an expression"
    assert found.tables == {"customers", "orders"}


def test_key_is_lost_with_a_column_of_it_and_made_by_distinct():
    assert told(lineage.project(orders(), taken(TOTAL))).key is None
    assert told(lineage.project(named_customers(), taken(CUSTOMER))).key is None
    assert told(lineage.distinct(lineage.project(orders(), taken(TOTAL)))).key == ["c2"]
    assert told(lineage.generate(orders(), [Output(9, None, ())])).key is None
    assert told(lineage.unbound(orders(), "LIMIT")).reason("orders") == "LIMIT"


@pytest.mark.parametrize(
    ("left", "right", "key"),
    [(orders, customers, ["c0"]), (customers, orders, ["c0"])],
    ids=["many to one", "one to many"],
)
def test_join_with_a_table_by_its_key_keeps_the_key_of_the_other(left, right, key):
    assert told(joined(Joining.INNER, left(), right())).key == key


def test_join_by_a_part_of_a_key_has_none():
    assert told(joined(Joining.INNER, orders(), named_customers())).key is None
    assert told(joined(Joining.INNER, named_customers(), orders())).key is None


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [
        (Joining.LEFT, customers, orders),
        (Joining.RIGHT, orders, customers),
        (Joining.FULL, orders, customers),
        (Joining.FULL, customers, orders),
    ],
)
def test_key_of_a_side_whose_columns_may_be_null_is_no_key(how, left, right):
    assert told(joined(how, left(), right())).key is None


@pytest.mark.parametrize("how", [Joining.SEMI, Joining.ANTI])
def test_rows_that_a_join_only_chooses_keep_their_key(how):
    assert told(joined(how)).key == ["c3"]


def test_join_with_a_side_without_a_key_has_none():
    without_key = lineage.generate(orders(), [])
    assert told(joined(Joining.INNER, customers(), without_key)).key is None


def test_equality_within_one_side_does_not_make_its_rows_single():
    within = lineage.join(customers(), orders(), Joining.INNER, [(CUSTOMER, NAME)])
    assert told(within).key is None


def test_key_that_is_not_shown_or_not_followed_is_none():
    assert Lineage(("total",), replace(orders(), columns=(TOTAL,))).key is None
    assert told(lineage.unbound(orders(), "LIMIT")).key is None


def test_column_of_branches_is_made_of_those_in_its_place():
    first = lineage.project(customers(), taken(CUSTOMER))
    second = lineage.project(orders(), [Output(31, ORDER_ID, (ORDER_ID,))])
    assert told(lineage.combine([first, second]), "id").origins("id") == {("customers", "id"), ("orders", "order_id")}
