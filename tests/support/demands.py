"""The demands of the documents that Ebbtide follows, each with its name here. Tests name them: `@pytest.mark.demand("ttl-end")`."""

from typing import NamedTuple


class Demand(NamedTuple):
    """A sentence of a document.

    Args:
        document: Its name.
        says: The demand, in a few words.
        here: What it is called here.
    """

    document: str
    says: str
    here: str


DEMANDS = {
    "ttl-defaults": Demand("FLIP-25", "TTL per state, with defaults", "`StateTtlConfig(ttl)`"),
    "ttl-names": Demand(
        "FLIP-25",
        "Names of the first version: OnCreate, OnRead, OnWrite, OnReadWrite",
        "`UpdateType`, which reads both versions",
    ),
    "ttl-updates": Demand("FLIP-25", "Renewal on creation, on writes, on reads", "`update_type`"),
    "ttl-clocks": Demand("FLIP-25", "Processing time and event time", "`time_characteristic`, `expiry_clock`"),
    "ttl-end": Demand("FLIP-25", "An entry stays at least its time to live", "`stamp + ttl <= now`"),
    "ttl-kinds": Demand(
        "FLIP-25", "Value, list and map state", "`ValueStateDescriptor`, `ListStateDescriptor`, `MapStateDescriptor`"
    ),
    "ttl-appending": Demand(
        "FLIP-25", "All subclasses of a state descriptor", "`ReducingStateDescriptor`, `AggregatingStateDescriptor`"
    ),
    "ttl-elements": Demand("FLIP-25", "List elements and map entries each have their own time", "`Entry.stamp_ms`"),
    "ttl-backends": Demand("FLIP-25", "The same for every state backend", "`heap`, `rocksdb`, rows of a state table"),
    "ttl-visibility": Demand("FLIP-25", "Expired entries are never shown, or shown once", "`state_visibility`"),
    "ttl-now": Demand(
        "FLIP-25",
        "What has expired goes by the present time, also where nothing comes",
        "`ebbtide run`, `ebbtide cleanup`",
    ),
    "ttl-timers": Demand(
        "FLIP-25",
        "Exact cleanup by one timer per key, as in the worked example",
        "`cleanup.timers` on heap and rocksdb",
    ),
    "ttl-timers-bound": Demand(
        "FLIP-25",
        "Entries are cleaned when their TTL expires, also where nothing comes",
        "`cleanup.timers` in pipelines: within a minute, which the check `expiry` judges",
    ),
    "ttl-precedence": Demand("FLIP-25", "TTL timers before the user's", "`FunctionRun.advance`"),
    "ttl-snapshot": Demand("FLIP-25", "Cleanup in full snapshots", "`cleanup.full_snapshot`"),
    "ttl-transformer": Demand(
        "FLIP-25", "A snapshot transformer keeps, changes or drops each entry", "`snapshot_transformer` of a descriptor"
    ),
    "ttl-incremental": Demand("FLIP-25", "Incremental cleanup, also for every record", "`cleanup.incremental`"),
    "ttl-compaction": Demand(
        "FLIP-25", "A compaction filter that asks for the time now and then", "`cleanup.compaction_filter`, `compact`"
    ),
    "ttl-migration": Demand("FLIP-25", "TTL is added to stored state, or dropped", "`ebbtide migrate`"),
    "ttl-refused": Demand("FLIP-25", "Stored state without TTL is not read with it by mistake", "`SpecChangedError`"),
    "ttl-background": Demand(
        "FLIP-25", "Cleanup in the background by default, which can be switched off", "`cleanup.background`"
    ),
    "ttl-event-time": Demand(
        "FLIP-25", "Event time goes by the watermark, which never falls", "`time_characteristic: EVENT_TIME`"
    ),
    "ttl-law": Demand(
        "FLIP-25", "Personal data is not accessible longer than the law allows", "`ttl`, `ebbtide erase`"
    ),
    "ttl-in-get": Demand("FLIP-25, future work", "TTL in get and update", "`get(ttl=...)`, `update(x, ttl=...)`"),
    "ttl-current": Demand("FLIP-25, future work", "The current TTL of a state object", "`current_ttl`"),
    "ttl-downtime": Demand(
        "FLIP-25, future work", "Downtime does not age state (FLINK-9661)", "`downtime_over`, `ebbtide pause`"
    ),
    "ttl-callback": Demand(
        "FLIP-25, future work", "A callback upon expiration", "`on_expire(key, entry, ctx)` of a function"
    ),
    "ttl-savepoint": Demand(
        "FLIP-25", "Savepoints, from which a job starts", "`ebbtide savepoint`, `ebbtide run --from`"
    ),
    "ttl-queryable": Demand("FLIP-25, future work", "Queryable state with TTL", "`ebbtide state`"),
    "sum-rules": Demand(
        "FLIP-544", "The materializer emits what Flink's does", "`order: arrival`, `SinkUpsertMaterializer`"
    ),
    "sum-strategies": Demand(
        "FLIP-544", "LEGACY, VALUE, MAP and ADAPTIVE, with the same rows", "`Strategy`; pipelines decide in columns"
    ),
    "sum-option": Demand(
        "FLIP-544",
        "A public option for strategy and thresholds",
        "refused in a spec, with the reason; `OrderedMultiset(strategy, high, low)`",
    ),
    "sum-cost": Demand(
        "FLIP-544", "Constant cost per record in long histories: at most 7 reads, 3 writes", "MAP: 5 and 3"
    ),
    "sum-adaptive": Demand(
        "FLIP-544", "Forms change at two thresholds, with defaults per backend", "`high`, `low`, `Store.thresholds`"
    ),
    "sum-upsert-key": Demand(
        "FLIP-544", "An update keeps the place of its row, by the upsert key", "`materializer.upsert_key`"
    ),
    "sum-ttl": Demand("FLIP-544", "Each row has its own time", "`ttl`, `ttl_ms`"),
    "sum-sweep": Demand("FLIP-544", "Every N seconds, what is due is unlinked", "`OrderedMultiset.sweep`"),
    "sum-empty": Demand("FLIP-544", "An emptied key leaves nothing", "all strategies"),
    "sum-restart": Demand(
        "FLIP-544", "State outlives restarts and a change of strategy", "all strategies read both forms"
    ),
    "sum-lag": Demand("FLIP-544", "The primitive serves lag and lead", "`ebbtide.functions:LagLead`"),
    "sum-dedup": Demand(
        "FLIP-544", "The primitive serves retraction-aware deduplication", "`ebbtide.functions:DeduplicateChangelog`"
    ),
    "sum-order": Demand("FLIP-544", "Messages that lost their order give the tables of the ordered ones", "`order`"),
    "sum-join": Demand(
        "FLIP-544",
        "A join of two changelogs is reconciled at its sink",
        "`source: {type: spark, function}`, `ebbtide.spark.into`",
    ),
    "sum-watermark": Demand(
        "FLIP-544", "The history is cleaned on the watermark", "`ttl` with `time_characteristic: EVENT_TIME`"
    ),
    "sum-multiset": Demand("FLIP-544", "Equal rows are an ordered multiset", "`OrderedMultiset`"),
    "sum-no-row": Demand(
        "FLIP-544", "A retraction that finds no row is noted, and emits nothing", "`unmatched`, the check `ordering`"
    ),
    "sum-equality": Demand("FLIP-544", "Rows are equal by their values in every backend", "`equality_key`"),
    "sql-environment": Demand(
        "FLIP-24", "A file configures sources, functions, variables, settings", "`--environment FILE`"
    ),
    "sql-catalogs": Demand("FLIP-24", "Catalogs", "`catalogs:`, `USE`"),
    "sql-functions": Demand(
        "FLIP-24",
        "User-defined functions, none under the name of one of the engine's",
        "`CREATE FUNCTION`, `functions:`",
    ),
    "sql-function-kinds": Demand(
        "FLIP-24", "Scalar, aggregate and table functions", "`pandas_udf`, `arrow_udf`, `udtf`, by `CREATE FUNCTION`"
    ),
    "sql-constructors": Demand(
        "FLIP-24", "Constructor parameters of functions", "`CREATE FUNCTION .. WITH (..)`, `constructor:`"
    ),
    "sql-types": Demand("FLIP-24", "User-defined types", "`CREATE TYPE` is refused by name"),
    "sql-settings": Demand("FLIP-24", "Properties of a session are set and reset", "`SET`, `RESET`"),
    "sql-describe": Demand("FLIP-24", "SHOW TABLES, DESCRIBE", "the same"),
    "sql-explain": Demand("FLIP-24", "EXPLAIN", "the same"),
    "sql-insert": Demand("FLIP-24", "INSERT INTO outlives the client", "`INSERT INTO`, `SHOW JOBS`"),
    "sql-restart": Demand(
        "FLIP-24", "A job is started again, from its last step on; one at a time", "`RESTART JOB`, status `LOST`"
    ),
    "sql-gateway": Demand("FLIP-24", "A gateway with sessions over REST", "`ebbtide sql-gateway`"),
    "sql-jdbc": Demand("FLIP-24", "JDBC", "tables by Spark's server; statements by REST"),
    "sql-results": Demand(
        "FLIP-24", "Results are read page by page; a result stream shows retractions", "pages, `EMIT CHANGES`"
    ),
    "sql-result-rows": Demand("FLIP-24", "Results are kept by the executor, up to a number of rows", "`max-rows`"),
    "sql-result-age": Demand(
        "FLIP-24", "A result is a snapshot that stays until it is read", "pages as of one version, `max-age`"
    ),
    "sql-cancel": Demand("FLIP-24", "A query is cancelled, a job is stopped", "`STOP JOB`, closing an operation"),
    "sql-views": Demand(
        "FLIP-24", "Materialized views, refreshed now and then", "`CREATE MATERIALIZED VIEW ... REFRESH EVERY`"
    ),
    "sql-sinks": Demand("FLIP-24", "Rows go to any system that is named", "`outputs`"),
    "sql-variables": Demand("FLIP-24", "Local variables", "`-D name=value`, `${name}`"),
    "sql-defaults": Demand(
        "FLIP-24", "Global defaults, and settings of a session above them", "`spark-defaults.conf`, `--conf`, `SET`"
    ),
}
"""By the name that tests mark them with."""
