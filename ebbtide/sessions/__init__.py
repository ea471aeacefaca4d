"""Sessions: Spark's session and the JVM behind it.

`build_session` starts Spark as Ebbtide needs it; `end_session` ends it with its JVM, `has_died` says that the JVM ended by itself.
`OnSpark` is the executor that runs work there, `executor_of` makes one of a session. `sigint_kept` keeps the caller's handler of SIGINT while PySpark starts. `refuse_literal_credentials` judges settings.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.sessions._on_spark import OnSpark as OnSpark
    from ebbtide.sessions._on_spark import executor_of as executor_of
    from ebbtide.sessions._session import build_session as build_session
    from ebbtide.sessions._session import end_session as end_session
    from ebbtide.sessions._session import has_died as has_died
    from ebbtide.sessions._session import sigint_kept as sigint_kept
    from ebbtide.sessions._settings import refuse_literal_credentials as refuse_literal_credentials
else:
    __getattr__, __all__ = names_of(__name__)
