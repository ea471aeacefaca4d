"""The Spark session that Ebbtide runs in. Building it is here; its life belongs to the caller.

Spark's JVM, and with it Ivy, log4j and Python workers (their prints and tracebacks too), writes where this process does,
or to a log file if one is given.

Which settings it has: `ebbtide.sessions._settings`. A setting `${NAME}` is the environment's `NAME`: so credentials are in
no file and in no user interface, and they are given to Spark by no command line. `EBBTIDE_LOG_LEVEL` is the level of Spark's log
(default `FATAL`: what fails is raised, and need not be logged as a stack too).
"""

from __future__ import annotations

import logging
import os
import pwd
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ebbtide import java
from ebbtide.environment import LOG_LEVEL
from ebbtide.errors import ConfigError
from ebbtide.redaction import is_credential
from ebbtide.sessions._class_archive import ClassArchive
from ebbtide.sessions._executors import refuse_unfit_executors
from ebbtide.sessions._jars import JARS, note_jars, with_known_jars
from ebbtide.sessions._needs import note_fit
from ebbtide.sessions._settings import (
    MASTER,
    PACKAGES,
    effective_settings,
    is_in_one_jvm,
    python_of_workers,
    settings_of_file,
)
from ebbtide.sessions._versions import SparkVersion

JVM_ENDS_WITHIN_S = 300
"""The first one writes the archive of its classes as it ends: some 10 CPU seconds."""


def build_session(
    app_name: str = "ebbtide",
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    *,
    keeps_sigint: bool = False,
) -> SparkSession:
    """Start Spark with Delta, tuned for small steps, or return the session that is running.

    Args:
        app_name: Name of the application.
        settings: Spark settings that override ours; `${NAME}` is a variable of the environment.
        log_file: Takes what the JVM and Python workers write, if the JVM is started here. Default: this process's output.
        keeps_sigint: The handler of SIGINT stays. PySpark's own stops jobs, and takes the caller's way to end a run.

    Raises:
        JavaMissingError: there is no Java to start, or it is too old.
        ConfigError: a setting names a variable that is not set.
    """
    with _sigint_kept() if keeps_sigint else nullcontext():
        return _built(app_name, settings or {}, log_file)


def _built(app_name: str, settings: Mapping[str, str], log_file: Path | None) -> SparkSession:
    of_file = settings_of_file()
    asked = effective_settings(app_name, settings, of_file)
    os.environ["PYSPARK_PYTHON"] = python_of_workers(of_file | asked)  # else the workers take python3 from PATH
    effective = with_known_jars(asked)
    has_jvm = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    if not has_jvm:
        _start_jvm(effective, log_file)
    builder = SparkSession.builder
    for name, value in effective.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    level = LOG_LEVEL.value
    session.sparkContext.setLogLevel(level)
    logging.getLogger("py4j").setLevel(level)
    SparkVersion.of_pyspark().query_logger().setLevel(level)
    if not has_jvm and PACKAGES in effective:
        note_jars(effective, session.conf.get(JARS) or "")
    master = str(session.conf.get(MASTER))
    if not has_jvm and not is_in_one_jvm(master):
        refuse_unfit_executors(session.sparkContext.parallelize([0], 1))
    note_fit(session)
    return session


def _has_passwd_entry() -> bool:
    """Return whether the user id has an entry, as the JVM needs it: unlike Python it takes no variable in its place."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def _start_jvm(settings: Mapping[str, str], log_file: Path | None) -> None:
    """Start the JVM that the next session of this process will use."""
    java.refuse_missing()
    if not _has_passwd_entry():
        raise ConfigError.of(
            "Spark cannot start: the user id of this process has no name.",
            got=f"id {os.getuid()}",
            allowed="an id with a line in /etc/passwd; the JVM takes neither USER nor HADOOP_USER_NAME in its place",
            next_step="Add the line, as Spark's own container images do at their start, or load libnss_wrapper. Commands without Spark run as they are.",
        )
    # The JVM's launch arguments are in its command line, which every user of the machine can read.
    public = {name: value for name, value in settings.items() if not is_credential(name)}
    launch_conf = SparkConf().setAll(list(public.items()))
    conf = SparkConf().setAll(list(settings.items()))
    # In a separate session a signal to our process group does not end it during a step; it ends when we close its input.
    how: dict[str, Any] = {"start_new_session": True}
    is_first_start = PACKAGES in settings  # no earlier one has noted their jars
    archive = ClassArchive.of_this_machine(may_write=not is_first_start)
    with archive.in_environment():
        if log_file is None:
            gateway = launch_gateway(launch_conf, how)  # type: ignore[no-untyped-call]
        else:
            with log_file.open("ab") as log:
                outputs = {"stdout": log, "stderr": log}
                gateway = launch_gateway(launch_conf, how | outputs)  # type: ignore[no-untyped-call]
    gateway.class_archive = archive
    SparkContext(conf=conf, gateway=gateway)


def end_session(session: SparkSession) -> None:
    """Stop the streams that are left, then the session and its JVM, and wait for its end; a later session starts another one.

    Args:
        session: That of `build_session`.
    """
    for query in session.streams.active:
        query.stop()
    context = type(session.sparkContext)
    gateway: Any = context._gateway  # the JVM outlives `stop`, and PySpark gives no other handle
    session.stop()
    context._gateway = context._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    exit_code = gateway.proc.wait(timeout=JVM_ENDS_WITHIN_S)
    # A gateway answers for any attribute by a Java member, and a JVM of another start has no archive.
    archive: ClassArchive | None = vars(gateway).get("class_archive")
    if archive is not None:
        archive.keep(exit_code)


def has_died(session: SparkSession) -> bool:
    """Return whether the JVM of a session has ended by itself.

    Args:
        session: That of `build_session`.
    """
    gateway: Any = type(session.sparkContext)._gateway
    return gateway is None or gateway.proc.poll() is not None


@contextmanager
def _sigint_kept() -> Iterator[None]:
    """Give SIGINT back to who had it: PySpark takes it on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
