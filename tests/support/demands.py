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
    "ttl-cleaned": Demand(
        "FLIP-25", "Old state is cleaned up automatically: state does not grow without end", "the tick that ends a run"
    ),
    "ttl-law": Demand(
        "FLIP-25", "Personal data is not accessible longer than the law allows", "`ttl`, `ebbtide erase`"
    ),
    "ttl-unified": Demand(
        "FLIP-25",
        "One meaning of TTL, reusable",
        "one rule for states of functions, tombstones, histories: `stamp + ttl <= now`",
    ),
    "ttl-end": Demand("FLIP-25", "State stays at least its time to live", "`StateTtlConfig.expired`"),
    "ttl-hidden": Demand(
        "FLIP-25", "Exact visibility: what has expired is hidden, even while it is stored", "`NEVER_RETURN_EXPIRED`"
    ),
    "ttl-visibility": Demand(
        "FLIP-25",
        "Relaxed visibility: what has expired is returned if it is still there",
        "`RETURN_EXPIRED_IF_NOT_CLEANED_UP`: once, by the read that removes it",
    ),
    "ttl-config": Demand(
        "FLIP-25",
        "A configuration, made by a builder, is supplied in the state descriptor",
        "`ValueStateDescriptor(of, StateTtlConfig(...))`, no builder: keywords do; a spec's `ttl` replaces it",
    ),
    "ttl-defaults": Demand("FLIP-25", "TTL per state, with defaults", "`StateTtlConfig(ttl)`"),
    "ttl-updates": Demand("FLIP-25", "Renewal on creation, on writes, on reads", "`update_type`"),
    "ttl-disabled": Demand("FLIP-25", "Disabled: the state as without TTL", "`DISABLED`, `ttl=None`"),
    "ttl-enums": Demand(
        "FLIP-25",
        "NeverReturnExpired, ReturnExpiredIfNotCleanedUp, ProcessingTime, EventTime",
        "read in this spelling and in capitals",
    ),
    "ttl-clocks": Demand("FLIP-25", "Processing time and event time", "`time_characteristic`"),
    "ttl-read": Demand(
        "FLIP-25", "A read checks the time, and deletes what has expired", "`ValueState.get`, `MapState.get`"
    ),
    "ttl-elements": Demand(
        "FLIP-25", "List elements and map entries each have their own time, that of their own write", "`Entry.stamp_ms`"
    ),
    "ttl-kinds": Demand(
        "FLIP-25", "Value, list and map state", "`ValueStateDescriptor`, `ListStateDescriptor`, `MapStateDescriptor`"
    ),
    "ttl-appending": Demand(
        "FLIP-25", "All subclasses of a state descriptor", "`ReducingStateDescriptor`, `AggregatingStateDescriptor`"
    ),
    "ttl-stamp": Demand("FLIP-25", "A value is stored with the time of its last access", "`Entry(value, stamp_ms)`"),
    "ttl-backends": Demand("FLIP-25", "The same for every state backend", "`heap`, `rocksdb`, rows of a state table"),
    "ttl-reinterpret": Demand(
        "FLIP-25",
        "The configuration only interprets stored state: another one holds for it, too",
        "the same by `ebbtide migrate`; a run refuses it before, for a mistake must not end entries",
    ),
    "ttl-refused": Demand("FLIP-25", "Stored state is not read with TTL, or without, by mistake", "`SpecChangedError`"),
    "ttl-migration": Demand("FLIP-25", "TTL is added to stored state, or dropped, by a migration", "`ebbtide migrate`"),
    "ttl-snapshot": Demand(
        "FLIP-25", "A full snapshot leaves out what has expired; the local state keeps it", "`cleanup.full_snapshot`"
    ),
    "ttl-transformer": Demand(
        "FLIP-25",
        "A snapshot transformer keeps, changes or drops each entry",
        "`snapshot_transformer` of a descriptor; in pipelines cleanup and compaction store its answers",
    ),
    "ttl-incremental": Demand(
        "FLIP-25",
        "Incremental cleanup: an iterator with loose consistency goes round all keys, also for every record",
        "`cleanup.incremental`",
    ),
    "ttl-incremental-access": Demand(
        "FLIP-25", "Each access to a state advances the iterator", "`KeyedState.before_access`"
    ),
    "ttl-now": Demand(
        "FLIP-25",
        "Caveat of incremental cleanup: what nothing accesses stays stored",
        "not in pipelines: `ebbtide run` and `ebbtide cleanup` go by the present time, also where nothing comes",
    ),
    "ttl-compaction": Demand(
        "FLIP-25",
        "A compaction filter judges each entry by a clock that it asks now and then",
        "`cleanup.compaction_filter`, `compact`; `ebbtide compact` has one clock",
    ),
    "ttl-rocksdb-compaction": Demand(
        "FLIP-25",
        "RocksDB's own compactions call the filter",
        "they do not: RocksDB's Python package takes no filter; call `compact`, then `RocksDbStore.compact`",
    ),
    "ttl-access-time": Demand(
        "FLIP-25",
        "By event time, the last access is the event time of the record being processed",
        "`Change.event_ms`; a late record leaves the time of a later one",
    ),
    "ttl-event-clock": Demand(
        "FLIP-25", "By event time, the watermark or processing time ends entries", "`expiry_clock`"
    ),
    "ttl-event-time": Demand("FLIP-25", "The watermark never falls", "`time_characteristic: EVENT_TIME`"),
    "ttl-cleanup-clocks": Demand(
        "FLIP-25",
        "Snapshots, the compaction filter and incremental cleanup get the watermark, too",
        "`KeyedState.clock_ms`",
    ),
    "ttl-v1-default": Demand(
        "FLIP-25, first version",
        "OnCreate is the default",
        "`ON_CREATE_AND_WRITE` is, as in the released version and in Flink",
    ),
    "ttl-names": Demand(
        "FLIP-25, first version",
        "OnCreate, OnRead, OnWrite, OnReadWrite",
        "`UpdateType`, which reads the names of both versions",
    ),
    "ttl-seconds": Demand(
        "FLIP-25, first version",
        "The time to live is a number of seconds",
        "a duration with its unit, `5s`; a bare number is refused",
    ),
    "ttl-timers": Demand(
        "FLIP-25, first version",
        "Exact cleanup by one timer per key, which a renewed entry sets again, as in the worked example",
        "`cleanup.timers` on heap and rocksdb, by `lastModifiedTs + TTL` as in the example",
    ),
    "ttl-timers-create": Demand(
        "FLIP-25, first version",
        "With OnCreate the timer deletes the entry, also if it was written since",
        "`cleanup.timers`",
    ),
    "ttl-timers-clocks": Demand(
        "FLIP-25, first version", "Timers by event time as by processing time", "`cleanup.timers`"
    ),
    "ttl-timers-bound": Demand(
        "FLIP-25, first version",
        "Exact or relaxed: state is cleaned when its TTL ends; timers may be coalesced",
        "in pipelines one tick does for all, within a minute with `cleanup.timers`; the check `expiry` judges it",
    ),
    "ttl-timers-restore": Demand(
        "FLIP-25, first version",
        "Timers hold over checkpoints and savepoints",
        "they are not stored, but set again from the entries",
    ),
    "ttl-precedence": Demand(
        "FLIP-25, first version",
        "TTL timers do not interfere with the user's: which comes first at one time",
        "they are apart; the TTL's come first: `FunctionRun.advance`",
    ),
    "ttl-no-worse": Demand(
        "FLIP-25, first version",
        "Not worse than what users do by timers of their own; little memory",
        "a stamp per entry",
    ),
    "ttl-in-get": Demand("FLIP-25, future work", "TTL in get and update", "`get(ttl=...)`, `update(x, ttl=...)`"),
    "ttl-current": Demand("FLIP-25, future work", "The current TTL of a state object", "`current_ttl`"),
    "ttl-downtime": Demand(
        "FLIP-25, future work", "Downtime does not age state (FLINK-9661)", "`downtime_over`, `ebbtide pause`"
    ),
    "ttl-callback": Demand(
        "FLIP-25, future work", "A callback upon expiration", "`on_expire(key, entry, ctx)` of a function"
    ),
    "ttl-queryable": Demand(
        "FLIP-25, future work", "Queryable state with TTL", "`ebbtide state`: which entries live, and until when"
    ),
    "ttl-meta": Demand(
        "FLIP-25, future work",
        'General meta information with each value, "probably out of scope"',
        "fixed: last access and end, which `ebbtide state` shows; more goes into the value",
    ),
    "ttl-required": Demand("State TTL explained (Flink 1.13)", "The time to live is required", "`ttl`, above 0"),
    "ttl-default-cleanup": Demand(
        "State TTL explained (Flink 1.13)",
        "Defaults: 5 entries per access on heap, not for every record; a clock per 1,000 entries on RocksDB; no cleanup of snapshots",
        "the same; 5 keys per access",
    ),
    "ttl-background": Demand(
        "State TTL explained (Flink 1.13)",
        "A TTL from the start, its cleanup in the background switched off until it is needed",
        "`cleanup.background: false`",
    ),
    "ttl-cleanup-change": Demand(
        "State TTL explained (Flink 1.13)",
        "Cleanup may be switched on and off for existing jobs",
        "no migration is asked for",
    ),
    "ttl-snapshot-rocksdb": Demand(
        "State TTL explained (Flink 1.13)",
        "Cleanup of snapshots has no effect on RocksDB with incremental checkpoints",
        "it has, on heap and rocksdb; in pipelines `ebbtide cleanup` deletes from the newest snapshot",
    ),
    "ttl-incremental-rocksdb": Demand(
        "State TTL explained (Flink 1.13)",
        "Incremental cleanup has no effect on RocksDB",
        "it has, where it is asked for; in a spec it is refused: a step reads only the keys that it touches",
    ),
    "ttl-restore-times": Demand(
        "State TTL explained (Flink 1.13)", "After a restore, entries end when they would have", "times are stored"
    ),
    "ttl-savepoint": Demand(
        "State TTL explained (Flink 1.13)",
        "A job is started from a savepoint",
        "`ebbtide savepoint`, `ebbtide run --from`",
    ),
    "ttl-first-login": Demand(
        "State TTL explained (Flink 1.13)",
        "The example: the first login is kept for 5 minutes, a later one is a first one again",
        "`ebbtide.functions:Deduplicate`",
    ),
    "sum-rules": Demand(
        "FLIP-544",
        "The four kinds of messages are reconciled as Flink's materializer does",
        "`order: arrival`, `SinkUpsertMaterializer`",
    ),
    "sum-order": Demand("FLIP-544", "Messages that lost their order give the tables of the ordered ones", "`order`"),
    "sum-violation": Demand("FLIP-544", "No key twice downstream, and no row lost", "the sink has one row per key"),
    "sum-history": Demand(
        "FLIP-544", "A history per key: rows come last, a retraction removes one anywhere", "`OrderedMultiset`"
    ),
    "sum-memory": Demand(
        "FLIP-544",
        "A long history is not read into memory as a whole",
        "MAP reads neighbours alone; a pipeline's step takes whole keys, some at a time: `max_group_bytes` ([why](../decisions/0009-the-materializer-in-columns.md))",
    ),
    "sum-cost": Demand(
        "FLIP-544",
        "Constant cost per record in long histories: at most 7 reads, 3 writes",
        "MAP: 5 and 3; a step is linear in its records and the histories of their keys",
    ),
    "sum-watermark": Demand(
        "FLIP-544", "The history is cleaned on the watermark", "`ttl` with `time_characteristic: EVENT_TIME`"
    ),
    "sum-avoid": Demand(
        "FLIP-544",
        "Queries do without a materializer where they can",
        "`order: upsert`, `order: {sequence: ...}`: no histories",
    ),
    "sum-first-last": Demand("FLIP-544", "FIRST_VALUE and LAST_VALUE with retraction", "`keep: first`, `keep: last`"),
    "sum-lag": Demand("FLIP-544", "Lag and lead with retraction", "`ebbtide.functions:LagLead`"),
    "sum-dedup": Demand("FLIP-544", "Retraction-aware deduplication", "`ebbtide.functions:DeduplicateChangelog`"),
    "sum-primitive": Demand(
        "FLIP-544",
        "The data structure is a separate primitive, whose implementation can be switched",
        "`OrderedMultiset`",
    ),
    "sum-option": Demand(
        "FLIP-544",
        "A public option for strategy and thresholds",
        "refused in a spec, with the reason; `OrderedMultiset(strategy, high, low)`",
    ),
    "sum-strategies": Demand(
        "FLIP-544", "LEGACY, VALUE, MAP and ADAPTIVE, with the same rows", "`Strategy`; pipelines decide in columns"
    ),
    "sum-default": Demand(
        "FLIP-544",
        "LEGACY is the default until the new version has TTL",
        "ADAPTIVE is: it has TTL ([why](../decisions/0009-the-materializer-in-columns.md))",
    ),
    "sum-legacy-ttl": Demand(
        "FLIP-544", "LEGACY has one TTL per key: no old row goes while new ones come", "`Strategy.LEGACY`"
    ),
    "sum-adaptive": Demand(
        "FLIP-544",
        "ADAPTIVE begins with VALUE, is MAP from one threshold up, and VALUE from another down",
        "`high`, `low`",
    ),
    "sum-thresholds": Demand(
        "FLIP-544",
        "Thresholds by the backend, which says its type: 50 and 40 on RocksDB, 400 and 300 on heap",
        "`Store.thresholds`: 10 and 6, 12 and 8, as measured in Python ([why](../decisions/0009-the-materializer-in-columns.md))",
    ),
    "sum-thresholds-restart": Demand("FLIP-544", "Thresholds take effect when a job is started again", "`high`, `low`"),
    "sum-short": Demand("FLIP-544", "Short histories cost what a list costs", "ADAPTIVE takes the accesses of VALUE"),
    "sum-links": Demand(
        "FLIP-544",
        "MAP links nodes by sequence numbers; holes are linked over",
        "numbers per chain of equal rows; the newest node is in the head",
    ),
    "sum-space": Demand("FLIP-544", "Two entries per record, in two maps", "MAP: at most two; in pipelines one"),
    "sum-insert": Demand("FLIP-544", "An added row emits an INSERT", "into an empty history; else `+U`, as Flink does"),
    "sum-retract": Demand(
        "FLIP-544",
        "A retraction of the only row emits DELETE, of the newest one UPDATE_AFTER, of another nothing",
        "the same",
    ),
    "sum-no-row": Demand(
        "FLIP-544",
        "A retraction that finds no row is logged, and emits nothing",
        "counted: `unmatched`, the check `ordering`",
    ),
    "sum-multiset": Demand("FLIP-544", "Equal rows are kept apart; the oldest is retracted first", "`OrderedMultiset`"),
    "sum-upsert-key": Demand(
        "FLIP-544",
        "With an upsert key a row takes the place of its former one, else it comes last",
        "`materializer.upsert_key`",
    ),
    "sum-empty": Demand("FLIP-544", "An emptied key leaves nothing", "all strategies"),
    "sum-heap": Demand("FLIP-544", "Heap and RocksDB are supported by all strategies", "`HeapStore`, `RocksDbStore`"),
    "sum-equality": Demand(
        "FLIP-544", "Rows are equal by their values in every backend, also after a recovery", "`equality_key`"
    ),
    "sum-backend-change": Demand(
        "FLIP-544",
        "State may change its backend",
        "entries are the same in each store; pipelines have one table for all engines",
    ),
    "sum-ttl": Demand(
        "FLIP-544",
        "Each row has its own time, which changed links do not renew",
        "`ttl`, `ttl_ms`",
    ),
    "sum-stamp": Demand("FLIP-544", "The time of its insertion is stored with each row", "also without a `ttl_ms`"),
    "sum-consistent": Demand(
        "FLIP-544",
        "Rows that expire leave all structures consistent",
        "each operation drops the expired rows that it meets",
    ),
    "sum-sweep": Demand("FLIP-544", "Every N seconds, what is due is unlinked", "`OrderedMultiset.sweep`; the tick"),
    "sum-sweep-middle": Demand(
        "FLIP-544", "A row updated in the middle may keep those behind it from expiring", "it does not"
    ),
    "sum-restart": Demand(
        "FLIP-544",
        "VALUE may become ADAPTIVE; LEGACY's state cannot be migrated",
        "any strategy may become any other: all read both forms",
    ),
    "sum-old-state": Demand(
        "FLIP-544", "Existing users are not impacted", "the stored form stays, older ones are read"
    ),
    "sum-benchmark": Demand("FLIP-544", "Micro benchmarks of the strategies", "`benchmarks/flip544.py`"),
    "sum-join": Demand(
        "FLIP-544",
        "A join of two changelogs is reconciled at its sink",
        "`source: {type: spark, function}`, `ebbtide.spark.into`",
    ),
    "sql-environment": Demand(
        "FLIP-24", "A file configures sources, functions, variables, settings", "`--environment FILE`"
    ),
    "sql-catalogs": Demand("FLIP-24", "Catalogs", "`catalogs:`, `USE`"),
    "sql-external-catalogs": Demand(
        "FLIP-24", "External catalogs: class, connection, credentials", "`external_catalogs:`, for queries"
    ),
    "sql-code": Demand("FLIP-24", "Code is given to the client, and to the jobs that it submits", "`--py-files`"),
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
    "sql-describe-function": Demand("FLIP-24", "DESCRIBE FUNCTION", "the same"),
    "sql-explain": Demand("FLIP-24", "EXPLAIN", "the same"),
    "sql-insert": Demand("FLIP-24", "INSERT INTO outlives the client", "`INSERT INTO`, `SHOW JOBS`"),
    "sql-restart": Demand(
        "FLIP-24", "A job is started again, from its last step on; one at a time", "`RESTART JOB`, status `LOST`"
    ),
    "sql-exit": Demand("FLIP-24", "Leaving ends queries, not jobs", "`QUIT`, the end of a session or a gateway"),
    "sql-ddl": Demand(
        "FLIP-24", "DDL: type, properties, encoding, schema of sources and sinks", "`CREATE SOURCE`, `CREATE TABLE`"
    ),
    "sql-retention": Demand("FLIP-24", "Retention time of a query", "`ttl` in WITH"),
    "sql-embedded": Demand("FLIP-24", "An embedded mode, with the answers of the gateway", "`ebbtide sql`"),
    "sql-scripts": Demand("FLIP-24", "EXECUTE a statement stored in a local file", "`-f`, `-i`, `SOURCE 'file'`"),
    "sql-history": Demand("FLIP-24", "A history of statements", "Ctrl-R"),
    "sql-completion": Demand("FLIP-24", "Code completion", "Tab"),
    "sql-priority": Demand(
        "FLIP-24", "A session's own go before the file's", "statements and `-D` above `--environment`"
    ),
    "sql-parallelism": Demand("FLIP-24", "Job parameters", "`SET spark.*`"),
    "sql-updates": Demand(
        "FLIP-24", "Queries with retractions, and with updates by key", "`-D` and `+I`, `-U` and `+U`"
    ),
    "sql-timeouts": Demand("FLIP-24", "Timeouts of the gateway", "`--idle-timeout`, `timeout_s`"),
    "sql-credentials": Demand("FLIP-24", "Credentials of clients", "`--token-env`, `--token-file`, `--clients`"),
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
