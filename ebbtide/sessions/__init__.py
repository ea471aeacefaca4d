"""Sessions: Spark's session and the JVM behind it.

`build_session` starts Spark as Ebbtide needs it; `end_session` ends it with its JVM.
`OnSpark` is the executor that runs work there, `executor_of` makes one of a session. A `CallbackConnection` is that of a query which calls Python. `refuse_literal_credentials` judges settings.
`Frames` makes the frames of a session, `spark_schema` their schemas; `arrow_table` and `arrow_schema` return Arrow's form.
What differs between versions of Spark is asked of a `SparkVersion`.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sessions._callbacks import CallbackConnection as CallbackConnection
    from ebbtide.sessions._frames import Frames as Frames
    from ebbtide.sessions._frames import spark_schema as spark_schema
    from ebbtide.sessions._on_spark import OnSpark as OnSpark
    from ebbtide.sessions._on_spark import executor_of as executor_of
    from ebbtide.sessions._session import build_session as build_session
    from ebbtide.sessions._session import end_session as end_session
    from ebbtide.sessions._settings import refuse_literal_credentials as refuse_literal_credentials
    from ebbtide.sessions._versions import SparkVersion as SparkVersion
    from ebbtide.sessions._versions import arrow_schema as arrow_schema
    from ebbtide.sessions._versions import arrow_table as arrow_table
else:
    __getattr__, __all__ = names_of(__name__)
