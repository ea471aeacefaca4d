"""Sessions: Spark's session and the JVM behind it.

`build_session` starts Spark as Ebbtide needs it; `end_session` ends it with its JVM, `has_died` says that the JVM ended by itself.
`OnSpark` is the executor that runs work there, `executor_of` makes one of a session. `sigint_kept` keeps the caller's handler of SIGINT while PySpark starts. `refuse_literal_credentials` judges settings.
Rows, columns and schemas get Spark's form by `arrow_frame`, `frame_of`, `read_delta`, `column`, `columns` and `spark_schema`, and Arrow's again by
`arrow_table` and `arrow_schema`. What differs between versions of Spark is asked of a `SparkVersion`, and of `condition_of`, `query_logger`,
`rows_of_plan` and `tried`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sessions._frames import column as column
    from ebbtide.sessions._frames import columns as columns
    from ebbtide.sessions._frames import frame_of as frame_of
    from ebbtide.sessions._frames import read_delta as read_delta
    from ebbtide.sessions._frames import spark_schema as spark_schema
    from ebbtide.sessions._on_spark import OnSpark as OnSpark
    from ebbtide.sessions._on_spark import executor_of as executor_of
    from ebbtide.sessions._session import build_session as build_session
    from ebbtide.sessions._session import end_session as end_session
    from ebbtide.sessions._session import has_died as has_died
    from ebbtide.sessions._session import sigint_kept as sigint_kept
    from ebbtide.sessions._settings import refuse_literal_credentials as refuse_literal_credentials
    from ebbtide.sessions._versions import SparkVersion as SparkVersion
    from ebbtide.sessions._versions import arrow_frame as arrow_frame
    from ebbtide.sessions._versions import arrow_schema as arrow_schema
    from ebbtide.sessions._versions import arrow_table as arrow_table
    from ebbtide.sessions._versions import condition_of as condition_of
    from ebbtide.sessions._versions import query_logger as query_logger
    from ebbtide.sessions._versions import rows_of_plan as rows_of_plan
    from ebbtide.sessions._versions import tried as tried
else:
    __getattr__, __all__ = names_of(__name__)
