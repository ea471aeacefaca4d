"""Sessions: Spark's session and the JVM behind it.

`build_session` starts Spark as Ebbtide needs it; `end_session` ends it with its JVM, `has_died` says that the JVM ended by itself.
`OnSpark` is the executor that runs work there, `executor_of` makes one of a session. `refuse_literal_credentials` judges settings.
`Frames` makes the frames of a session, `columns` and `spark_schema` what is asked of them; `arrow_table` and `arrow_schema` return Arrow's form.
What differs between versions of Spark is asked of a `SparkVersion`, and of `condition_of` and `query_logger`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sessions._frames import Frames as Frames
    from ebbtide.sessions._frames import columns as columns
    from ebbtide.sessions._frames import spark_schema as spark_schema
    from ebbtide.sessions._on_spark import OnSpark as OnSpark
    from ebbtide.sessions._on_spark import executor_of as executor_of
    from ebbtide.sessions._session import build_session as build_session
    from ebbtide.sessions._session import end_session as end_session
    from ebbtide.sessions._session import has_died as has_died
    from ebbtide.sessions._settings import refuse_literal_credentials as refuse_literal_credentials
    from ebbtide.sessions._versions import SparkVersion as SparkVersion
    from ebbtide.sessions._versions import arrow_schema as arrow_schema
    from ebbtide.sessions._versions import arrow_table as arrow_table
    from ebbtide.sessions._versions import condition_of as condition_of
    from ebbtide.sessions._versions import query_logger as query_logger
else:
    __getattr__, __all__ = names_of(__name__)
