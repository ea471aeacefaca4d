import pytest
from local.states import run_with
from pydantic import ValidationError

from ebbtide.columns import Long
from ebbtide.keyed_state import (
    CompactionFilter,
    Entry,
    IncrementalCleanup,
    StateTtlConfig,
    StateVisibility,
    TimeCharacteristic,
    UpdateType,
    ValueStateDescriptor,
)

NEVER_MS = 2**63 - 1


@pytest.mark.parametrize(
    ("stamp", "ttl", "now", "want"),
    [
        (0, 10, 9, False),
        (0, 10, 10, True),
        (-1, 1, -1, False),
        (-1, 1, 0, True),
        (Long.MIN, 1, Long.MIN, False),
        (Long.MIN, 1, Long.MIN + 1, True),
        (Long.MIN, Long.MAX - 1, -3, False),
        (Long.MIN, Long.MAX - 1, -2, True),
        (Long.MAX, 1, Long.MAX - 1, False),
        (Long.MAX, 1, Long.MAX, True),
        (Long.MAX - 5, 10, Long.MAX - 1, False),
        (Long.MAX - 5, 10, Long.MAX, True),
        (1, Long.MAX - 1, Long.MAX - 1, False),
        (1, Long.MAX - 1, Long.MAX, True),
        (0, NEVER_MS, Long.MAX - 1, False),
        (0, NEVER_MS, Long.MAX, True),
        (Long.MIN, NEVER_MS, -2, False),
        (Long.MIN, NEVER_MS, -1, True),
        (0, 1, Long.MIN, False),
    ],
)
@pytest.mark.demand("ttl-end")
def test_expired_exactly_from_stamp_and_ttl_on(stamp, ttl, now, want):
    run = run_with(ValueStateDescriptor("BIGINT", StateTtlConfig(ttl="1d")))
    run.context.now_ms = now
    assert run.states["s"].has_expired(Entry("x", stamp, ttl)) is want


@pytest.mark.demand("ttl-defaults", "ttl-v1-default", "ttl-default-cleanup")
def test_ttl_config_has_the_defaults_of_its_page():
    config = StateTtlConfig(ttl="30d")
    assert (config.ttl_ms, config.expire_live) == (30 * 86_400_000, False)
    assert (config.update_type, config.time_characteristic) == (
        UpdateType.ON_CREATE_AND_WRITE,
        TimeCharacteristic.PROCESSING_TIME,
    )
    assert config.state_visibility == StateVisibility.NEVER_RETURN_EXPIRED
    assert config.cleanup.model_dump() == {
        "full_snapshot": False,
        "incremental": None,
        "compaction_filter": None,
        "timers": False,
        "background": True,
    }
    assert IncrementalCleanup().model_dump() == {"cleanup_size": 5, "run_for_every_record": False}
    assert CompactionFilter().query_time_after_num_entries == 1000


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Disabled", "DISABLED"),
        ("OnCreate", "ON_CREATE"),
        ("OnRead", "ON_READ"),
        ("OnWrite", "ON_CREATE_AND_WRITE"),
        ("OnReadWrite", "ON_READ_AND_WRITE"),
        ("OnCreateAndWrite", "ON_CREATE_AND_WRITE"),
        ("OnReadAndWrite", "ON_READ_AND_WRITE"),
    ],
)
@pytest.mark.demand("ttl-names")
def test_names_of_both_versions_of_the_flip_are_read(name, want):
    assert StateTtlConfig(ttl="1d", update_type=name).update_type == want
    assert UpdateType(name).name == want


@pytest.mark.parametrize(
    ("field", "name", "want"),
    [
        ("time_characteristic", "ProcessingTime", "PROCESSING_TIME"),
        ("time_characteristic", "EventTime", "EVENT_TIME"),
        ("time_characteristic", "EVENT_TIME", "EVENT_TIME"),
        ("state_visibility", "NeverReturnExpired", "NEVER_RETURN_EXPIRED"),
        ("state_visibility", "ReturnExpiredIfNotCleanedUp", "RETURN_EXPIRED_IF_NOT_CLEANED_UP"),
    ],
)
@pytest.mark.demand("ttl-enums")
def test_names_of_clocks_and_visibility_are_read_as_the_flip_spells_them(field, name, want):
    assert getattr(StateTtlConfig(ttl="1d", **{field: name}), field) == want


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ttl": "0s"},
        {"ttl": "-P1D"},
        {"ttl": 5},
        {"ttl": "1d", "update_type": "ON_DELETE"},
        {"ttl": "1d", "state_visibility": "SOMETIMES"},
        {"ttl": "1d", "expiry_clock": "PROCESSING_TIME"},
        {"ttl": "1d", "update_type": "DISABLED", "cleanup": {"timers": True}},
        {"ttl": "1d", "cleanup": {"incremental": {"cleanup_size": 0}}},
        {"ttl": "1d", "cleanup": {"compaction_filter": {"query_time_after_num_entries": 0}}},
        {"ttl": "1d", "more": 1},
    ],
)
@pytest.mark.demand("ttl-seconds", "ttl-required")
def test_ttl_config_that_cannot_be_kept_is_refused(fields):
    with pytest.raises(ValidationError):
        StateTtlConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"ttl": "2d"}, False),
        ({"update_type": "ON_CREATE"}, False),
        ({"state_visibility": "RETURN_EXPIRED_IF_NOT_CLEANED_UP"}, False),
        ({"time_characteristic": "PROCESSING_TIME"}, False),
        ({"expiry_clock": "PROCESSING_TIME"}, False),
        ({"expire_live": True}, False),
        ({"cleanup": {"timers": True}}, True),
    ],
)
@pytest.mark.demand("ttl-cleanup-change")
def test_identity_changes_with_all_but_the_cleanup(fields, same):
    given = {"ttl": "1d", "time_characteristic": "EVENT_TIME"}
    assert (StateTtlConfig(**given | fields).state_contract == StateTtlConfig(**given).state_contract) is same
