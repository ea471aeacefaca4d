"""Plans as Spark's `toJSON` lists them, each node before its children, to relations."""

import pytest

from ebbtide.errors import ViewQueryError
from ebbtide.views.catalyst import PlanReader
from ebbtide.views.lineage import Lineage
from ebbtide.views.nodes import Node

EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
PLANS = "org.apache.spark.sql.catalyst.plans.logical."


def attribute(column, name="c", qualifier="[]"):
    fields = {"name": name, "exprId": {"id": column}, "qualifier": qualifier}
    return [{"class": f"{EXPRESSIONS}AttributeReference", "num-children": 0, **fields}]


def computed(kind, *children):
    return [
        {"class": EXPRESSIONS + kind, "num-children": len(children)},
        *[node for child in children for node in child],
    ]


def alias(column, expression):
    return [{"class": f"{EXPRESSIONS}Alias", "num-children": 1, "exprId": {"id": column}}, *expression]


def node(kind, *children, **fields):
    return [
        {"class": PLANS + kind, "num-children": len(children), **fields},
        *[each for child in children for each in child],
    ]


def view(name, *columns, **identifier):
    output = [attribute(column, f"{name}_{column}") for column in columns]
    described = {"identifier": {"table": name, **identifier}}
    return node("View", node("LogicalRDD", output=output), desc=described, isTempView=True)


def read(plan, *names, keys=("t", "u")):
    reader = PlanReader(dict.fromkeys(keys, ()))
    relation = reader.relation(Node.of(plan))
    return reader, Lineage(names or tuple(map(str, relation.columns)), relation)


def test_aliased_column_keeps_its_bond_and_a_cast_one_loses_it():
    selected = [alias(10, attribute(1)), alias(11, computed("Cast", attribute(2)))]
    _, found = read(node("Project", view("t", 1, 2, 3), projectList=selected))
    assert found.columns_of("t") == ["10"]
    assert found.cut("t", ["10"]) == (("t_1",),)


def test_join_is_bound_by_bare_columns_of_its_condition_alone():
    equal = computed("EqualTo", attribute(1), attribute(3))
    cast = computed("EqualTo", attribute(2), computed("Cast", attribute(4)))
    condition = computed("And", equal, cast)
    plan = node("Join", view("t", 1, 2), view("u", 3, 4), joinType={"object": "x.Inner$"}, condition=condition)
    _, found = read(plan)
    assert (found.columns_of("t"), found.columns_of("u")) == (["1", "2", "3"], ["1", "3", "4"])
    either = computed("Or", equal, cast)
    plan = node("Join", view("t", 1, 2), view("u", 3, 4), joinType={"object": "x.Inner$"}, condition=either)
    assert read(plan)[1].common_columns(["t", "u"]) == []


@pytest.mark.parametrize(
    ("how", "of_t", "of_u"),
    [
        ("LeftOuter", ["1", "2"], ["1"]),
        ("RightOuter", ["3"], ["3", "4"]),
        ("FullOuter", [], []),
        ("LeftSemi", ["1", "2"], ["1"]),
        ("LeftAnti", ["1", "2"], ["1"]),
        ("LeftSingle", [], []),
    ],
)
def test_join_is_bound_as_its_kind_is(how, of_t, of_u):
    equal = computed("EqualTo", attribute(1), attribute(3))
    plan = node("Join", view("t", 1, 2), view("u", 3, 4), joinType={"object": f"x.{how}$"}, condition=equal)
    _, found = read(plan)
    assert (found.columns_of("t"), found.columns_of("u")) == (of_t, of_u)


def test_inequality_binds_nothing_across():
    less = computed("LessThan", attribute(1), attribute(3))
    plan = node("Join", view("t", 1, 2), view("u", 3, 4), joinType={"object": "x.Inner$"}, condition=less)
    assert read(plan)[1].common_columns(["t", "u"]) == []


def test_group_that_is_shown_in_part_or_as_another_expression_has_no_key():
    in_part = node(
        "Aggregate",
        view("t", 1, 2),
        groupingExpressions=[attribute(1), attribute(2)],
        aggregateExpressions=[alias(10, attribute(1))],
    )
    assert read(in_part)[1].key is None
    as_another = node(
        "Aggregate",
        view("t", 1),
        groupingExpressions=[computed("Upper", attribute(1))],
        aggregateExpressions=[alias(10, computed("Lower", attribute(1)))],
    )
    assert read(as_another)[1].key is None


def test_group_is_told_by_an_expression_that_is_shown():
    by_day = computed("Cast", attribute(1, qualifier="[t]"))
    shown = [alias(10, computed("Cast", attribute(1))), alias(11, computed("Count", attribute(2)))]
    plan = node("Aggregate", view("t", 1, 2), groupingExpressions=[by_day], aggregateExpressions=shown)
    _, found = read(plan)
    assert (found.key, found.columns_of("t")) == (["10"], [])
    plan = node("Aggregate", view("t", 1, 2), groupingExpressions=[attribute(2)], aggregateExpressions=shown)
    assert read(plan)[1].key is None


def test_subquery_that_is_named_twice_is_read_twice():
    shared = node("CTERelationDef", view("t", 1), id=0)
    first = node("CTERelationRef", cteId=0, output=[attribute(20)])
    second = node("CTERelationRef", cteId=0, output=[attribute(30)])
    equal = computed("EqualTo", attribute(20), attribute(30))
    joined = node("Join", first, second, joinType={"object": "x.Inner$"}, condition=equal)
    _, found = read(node("WithCTE", shared, joined))
    assert len(found.result.readings) == 2
    assert found.columns_of("t") == ["20", "30"]


def test_table_in_a_subquery_of_a_condition_is_computed_whole():
    exists = [{"class": f"{EXPRESSIONS}Exists", "num-children": 0, "plan": view("u", 3)}]
    _, found = read(node("Filter", view("t", 1), condition=exists))
    assert (found.columns_of("t"), found.columns_of("u")) == (["1"], [])


def test_node_that_is_not_known_binds_nothing_and_is_named():
    made = [alias(9, computed("Upper", attribute(2)))]
    _, found = read(
        node("Project", node("Strange", view("t", 1, 2), made=made), projectList=[attribute(1), attribute(9)])
    )
    assert found.columns_of("t") == []
    assert found.reason("t") == "Strange, through which keys are not followed"
    assert found.origins("1") == {("t", "t_1")}
    assert found.origins("9") == {("t", "t_1"), ("t", "t_2")}


def test_column_of_unpivot_is_made_of_what_stands_in_its_place():
    output = [attribute(10), attribute(11)]
    projections = [[attribute(1), attribute(2)], [attribute(1), attribute(3)]]
    _, found = read(node("Expand", view("t", 1, 2, 3, 4), projections=projections, output=output), "id", "value")
    assert (found.origins("id"), found.origins("value")) == ({("t", "t_1")}, {("t", "t_2"), ("t", "t_3")})
    assert (found.columns_of("t"), found.key) == ([], None)
    assert found.reason("t") == "Expand, through which keys are not followed"


def test_column_of_expressions_that_the_plan_leaves_out_may_be_made_of_all_below():
    output = [attribute(1), attribute(10)]
    _, found = read(node("Expand", view("t", 1, 2), projections=None, output=output), "id", "value")
    assert found.origins("id") == found.origins("value") == {("t", "t_1"), ("t", "t_2")}
    assert found.columns_of("t") == []


def test_column_of_a_scalar_subquery_is_made_of_what_that_gives():
    scalar = [{"class": f"{EXPRESSIONS}ScalarSubquery", "num-children": 0, "plan": view("u", 3)}]
    _, found = read(node("Project", view("t", 1), projectList=[attribute(1), alias(9, computed("Upper", scalar))]))
    assert (found.origins("1"), found.origins("9")) == ({("t", "t_1")}, {("u", "u_3")})
    generated = node("Generate", view("t", 1), generator=computed("Explode", scalar), generatorOutput=[attribute(8)])
    assert read(generated)[1].origins("8") == {("u", "u_3")}


def test_column_of_a_lateral_subquery_is_made_of_what_it_reads_there_and_outside():
    inner = node("Project", view("u", 3), projectList=[alias(9, computed("Concat", attribute(3), attribute(2)))])
    lateral = [{"class": f"{EXPRESSIONS}LateralSubquery", "num-children": 1, "plan": inner}, *attribute(2)]
    joined = node("LateralJoin", view("t", 1, 2), right=lateral)
    _, found = read(node("Project", joined, projectList=[attribute(1), attribute(9)]))
    assert (found.origins("1"), found.origins("9")) == ({("t", "t_1")}, {("t", "t_2"), ("u", "u_3")})


@pytest.mark.parametrize("between", [[], ["Project"], ["SubqueryAlias", "LocalLimit"], ["PipeOperator", "Filter"]])
def test_limit_of_sorted_rows_is_taken_and_binds_nothing(between):
    plan = node("Sort", view("t", 1), **{"global": True})
    for kind in between:
        plan = node(kind, plan, projectList=[attribute(1)])
    _, found = read(node("GlobalLimit", plan))
    assert (found.columns_of("t"), found.reason("t")) == ([], "LIMIT")


def test_limit_in_exists_is_taken_for_no_limit():
    limited = node("GlobalLimit", node("LocalLimit", view("u", 3)))
    exists = [{"class": f"{EXPRESSIONS}Exists", "num-children": 0, "plan": limited}]
    assert read(node("Filter", view("t", 1), condition=exists))[1].tables == {"t", "u"}
    scalar = [{"class": f"{EXPRESSIONS}ScalarSubquery", "num-children": 0, "plan": limited}]
    with pytest.raises(ViewQueryError, match="LIMIT or OFFSET without ORDER BY"):
        read(node("Filter", view("t", 1), condition=scalar))


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (node("GlobalLimit", node("LocalLimit", view("t", 1))), "nothing says which. Got: LIMIT or OFFSET without"),
        (node("Offset", node("Sort", view("t", 1), **{"global": False})), "LIMIT or OFFSET without ORDER BY"),
        (node("Tail", node("Distinct", node("Sort", view("t", 1), **{"global": True}))), "without ORDER BY"),
        (node("LogicalRelation"), "no table of a pipeline. Got: LogicalRelation. Allowed: t, u"),
        (view("strange", 1), "no table of a pipeline. Got: LogicalRDD"),
        (view("t", 1, database="global_temp"), "no table of a pipeline. Got: LogicalRDD"),
        (node("Sample", view("t", 1)), "takes a sample"),
        (node("CTERelationRef", cteId=0, output=[], recursive=True), "recursive"),
        (
            node(
                "Project",
                view("t", 1),
                projectList=[alias(9, computed("AggregateExpression", computed("First", attribute(1))))],
            ),
            "order in which rows come. Got: First",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(plan, told):
    with pytest.raises(ViewQueryError) as raised:
        read(plan)
    assert told in str(raised.value)


def test_list_that_is_sorted_does_not_depend_on_the_order_of_rows():
    collected = computed("AggregateExpression", computed("CollectList", attribute(1)))
    plan = node("Project", view("t", 1), projectList=[alias(9, computed("ArraySort", collected))])
    assert read(plan)[1].tables == {"t"}
