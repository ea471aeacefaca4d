"""Several pipelines in one file: what they share, where their errors are, and how each is named."""

import pytest
import yaml

from ebbtide import UpsertPipelines, load
from ebbtide.dagster.sensors import topics_sensor
from ebbtide.definitions import all_several, load_all
from ebbtide.errors import ConfigError, SqlError
from ebbtide.inspect import UnreadTopics
from ebbtide.sql import Catalog

SHARED = {
    "source": {"type": "kafka", "bootstrap_servers": "b:9092", "properties": {"client.rack": "r"}},
    "format": {"type": "debezium"},
    "order": {"sequence": ["_lsn"]},
    "ttl": "30d",
}
ORDERS = {"name": "orders", "source": {"topic": "shop.orders"}, "schema": "id BIGINT, total INT", "key": ["id"]}
USERS = {"name": "users", "source": {"topic": "shop.users", "start": "latest"}, "schema": "id INT", "key": ["id"], "ttl": "1d"}  # fmt: skip


FILES = {
    "shared": {**SHARED, "source": {"records": "value"}},
    "pipelines": [{**ORDERS, "source": {"path": "data/orders"}}, {**USERS, "source": {"path": "data/users"}}],
}


@pytest.fixture
def write(tmp_path):
    def write(**attributes):
        (tmp_path / "pyproject.toml").touch()
        given = {"name": "shop", "shared": SHARED, "pipelines": [ORDERS, USERS], **attributes}
        folder = tmp_path / "defs" / "shop"
        folder.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump({"type": "ebbtide.dagster.UpsertPipelines", "attributes": given})
        (folder / "defs.yaml").write_text(text)
        return folder

    return write


def test_each_has_what_is_shared_and_its_own_goes_before_it(write):
    folder = write()
    [(one, orders), (other, users)] = load_all([str(folder)])
    assert (one, other) == (f"{folder}/orders", f"{folder}/users")
    assert (orders.source.start, users.source.start) == ("earliest", "latest")
    assert (orders.ttl.ttl.days, users.ttl.ttl.days) == (30, 1)
    assert users.source.properties == {"client.rack": "r"}
    assert load(one) == orders
    assert load_all([str(folder.parent)]) == [(one, orders), (other, users)]
    assert [several.places_read for several in all_several(str(folder.parent))] == [{"shop.orders", "shop.users"}]


def test_one_is_named_by_folder_and_name_and_all_of_them_are_not_one(write):
    folder = write()
    with pytest.raises(ConfigError, match=rf"is several pipelines. Got: 2. Allowed: one of {folder}/orders, "):
        load(folder)
    with pytest.raises(ConfigError, match=r"has no such pipeline. Got: order. Allowed: orders, users"):
        load(folder / "order")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pipelines": [ORDERS, {**USERS, "key": ["no"]}]}, r"pipelines.users: .*key.*got no"),
        ({"pipelines": [ORDERS, {**USERS, "kee": 1}]}, r"pipelines.users.kee: there is no such field; did you mean 'key'"),
        ({"pipelines": [ORDERS, {"name": "users"}]}, r"pipelines.users.source.topic: Field required.*pipelines.users.schema"),
        ({"shared": {**SHARED, "ttl": "soon"}}, r"not usable. line \d+: shared.ttl: got 'soon'(?!.*soon)"),
        ({"shared": {**SHARED, "source": {**SHARED["source"], "bootstrap_servers": "b"}}}, r"shared.source.bootstrap_servers"),
        ({"shared": {**SHARED, "name": "x"}}, r"shared: got name"),
        ({"pipelines": [ORDERS, {**USERS, "name": "orders"}]}, r"got orders; allowed: a unique name for each"),
        ({"pipelines": []}, r"at least 1 item"),
        ({"pipelines": ["orders"]}, r"pipelines.0"),
        ({"topics": "a*", "pipelines": [ORDERS, {**USERS, "source": {"topic": "u", "bootstrap_servers": "c:1"}}]}, r"none if brokers differ"),
        ({"folders": "data/*"}, r"folders: got data/\*; allowed: none with other sources than files"),
        ({**FILES, "topics": "a*"}, r"topics: got a\*; allowed: none with other sources than kafka"),
        ({**FILES, "folders": "*/data"}, r"folders: got \*/data; allowed: wildcards only in the last name"),
    ],
)  # fmt: skip
def test_error_names_the_place_of_the_part_at_fault(write, given, message):
    with pytest.raises(ConfigError, match=message):
        load_all([str(write(**given))])


def test_catalog_has_each_and_lets_none_be_dropped_from_the_file(write, tmp_path):
    folder = write()
    pipelines = Catalog(str(tmp_path / "root"), folder.parent).pipelines()
    assert {name: str(entry.location) for name, entry in pipelines.items()} == {
        "orders": f"{folder}/orders",
        "users": f"{folder}/users",
    }
    with pytest.raises(SqlError, match=r"one of several pipelines in '.*/shop/defs.yaml'"):
        pipelines["orders"].refuse_shared_file()


def test_folder_with_a_defs_yaml_of_its_own_goes_before_a_pipeline_of_its_name(write):
    folder = write()
    own = folder / "orders"
    own.mkdir()
    attributes = {**SHARED, **ORDERS, "name": "mine", "source": {"path": "in"}}
    (own / "defs.yaml").write_text(yaml.safe_dump({"type": "ebbtide.UpsertPipeline", "attributes": attributes}))
    assert load(own).name == "mine"


def test_several_in_python():
    several = UpsertPipelines(name="shop", shared=SHARED, pipelines=[ORDERS])
    assert [spec.name for spec in several.pipelines] == ["orders"]


def test_folders_that_no_pipeline_reads_are_named_but_those_that_are_ignored(write, tmp_path):
    for name in ("orders", "users", "items", "old.items", ".hidden"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / "file").touch()
    [several] = all_several(str(write(**FILES, folders="data/*", ignored_folders=["old.*"])))
    assert several.places_read == {f"{tmp_path}/data/orders", f"{tmp_path}/data/users"}
    found = UnreadTopics.of(several)
    assert found.as_dict() == {
        "pipelines": "shop",
        "folders": f"{tmp_path}/data/*",
        "unread_folders": [f"{tmp_path}/data/items"],
    }
    assert "ebbtide new shop prints the lines to add" in found.text()
    assert topics_sensor(several).name == "shop_folders"


def test_file_without_a_pattern_names_nothing(write):
    [several] = all_several(str(write(**FILES)))
    assert UnreadTopics.of(several) is None
