"""The Kafka client, and the meaning of its errors. The library is loaded on first use."""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from ebbtide.environment import from_environment
from ebbtide.errors import ConfigError, EbbtideError, MissingExtraError, SourceReadError, SourceUnavailableError

ANSWER_S = 8.0
"""Seconds to wait for an answer of the brokers, so that an error is reported within 10 s."""
TELLING = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
"""Errors that explain a missing connection and that waiting does not cure."""
SHARED_NAME = "ebbtide"
"""Name in the brokers' logs of the client that all pipelines share."""
LAST_REPORTED = 20
"""Number of a client's reports that are kept."""
MOST_KEPT = 8
"""Number of connections that are kept, one per cluster."""
Answer = TypeVar("Answer")
Report = Callable[[Any], None]
"""Receives errors of the client that belong to no call."""


@dataclass(frozen=True)
class Client:
    """The settings of a Kafka client. They contain no credentials, only names of variables.

    Args:
        servers: HOST:PORT, separated by commas.
        properties: Settings by librdkafka's names; `${NAME}` is a variable of the environment.
        name: Its name in the brokers' logs.
    """

    servers: str
    properties: Mapping[str, str]
    name: str

    def settings(self) -> dict[str, str]:
        """Return the settings with variables resolved; these values must not be shown.

        Raises:
            ConfigError: a variable is not set.
        """
        given = {}
        for name, value in self.properties.items():
            given[name] = from_environment(f"The property '{name}' of the Kafka source", value)
        return {
            "client.id": self.name,
            **given,
            "bootstrap.servers": self.servers,
            "log_level": "0",
        }

    def shared_settings(self) -> dict[str, str]:
        """Return the settings of a client that all pipelines with the same brokers and properties share; see `settings`."""
        given_name = self.properties.get("client.id")
        return self.settings() if given_name else {**self.settings(), "client.id": SHARED_NAME}


def library() -> ModuleType:
    """Load the Kafka client.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingExtraError.of_extra("kafka", "confluent-kafka") from error
    return confluent_kafka


class Connection:
    """A Kafka client that many requests may use at the same time.

    Args:
        settings: Settings of the client.

    Raises:
        ConfigError: the client refuses a property.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        kafka = library()
        self._last: deque[tuple[int, Any]] = deque(maxlen=LAST_REPORTED)
        self._n_reported = 0
        try:
            self.admin = kafka.admin.AdminClient({**settings, "error_cb": self._note})
        except kafka.KafkaException as error:
            raise refused_properties(error) from error

    def _note(self, error: Any) -> None:
        """Keep an error that the client reports outside of answers."""
        self._last.append((self._n_reported, error))
        self._n_reported += 1

    def now(self) -> int:
        """Return the number of the next report, to find the reports since then."""
        self.admin.poll(0)
        return self._n_reported

    def reported_since(self, number: int) -> list[Any]:
        """Return the last reports since a number."""
        return [error for at, error in list(self._last) if at >= number]


class Asking:
    """Sends requests to the brokers, and keeps errors that the client reports outside of answers.

    Args:
        client: Settings of the client.
        connection: The connection to reuse; None: create one.

    Raises:
        ConfigError: the client refuses a property.
    """

    def __init__(self, client: Client, connection: Connection | None = None) -> None:
        self._client = client
        self._kafka = library()
        self.is_kept = connection is not None
        """True if it was used before: its knowledge of the brokers may be outdated."""
        self.connection = connection or Connection(client.shared_settings())
        self.admin = self.connection.admin
        self._since = self.connection.now()
        self.begin()

    def begin(self) -> None:
        """Begin another request with the full time: slow brokers may still answer."""
        self._end = time.monotonic() + ANSWER_S

    @property
    def _reported(self) -> list[Any]:
        return self.connection.reported_since(self._since)

    def permanent(self) -> list[Any]:
        """Return the reported errors that waiting does not cure."""
        return [error for error in self._reported if is_telling(error)]

    @property
    def is_late(self) -> bool:
        """Return whether the time to answer is over."""
        return time.monotonic() > self._end

    def answer(self, future: Any) -> Any:
        """Wait for an answer; give up early on errors that waiting does not cure.

        Raises:
            SourceReadError: the brokers refuse the client.
            SourceUnavailableError: there is no answer.
        """
        while not future.done():
            with suppress(TimeoutError):
                future.exception(0.05)
            self.admin.poll(0)  # receives the client's reports
            permanent = self.permanent()
            is_over = self.is_late and not future.done()
            if permanent or is_over:
                raise unreachable(self._client.servers, permanent or self._reported)
        try:
            return future.result()
        except self._kafka.KafkaException as error:
            kafka_error = error.args[0]
            if kafka_error.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"):
                raise unreachable(self._client.servers, [*self._reported, kafka_error]) from error
            raise


_kept: dict[frozenset[tuple[str, str]], Connection] = {}
"""The last working connections, by their settings. All pipelines of a process share them. Otherwise each poll of a continuous run
would connect and log in twice."""
atexit.register(_kept.clear)


def answered(client: Client, question: Callable[[Asking], Answer]) -> Answer:
    """Return the brokers' answer to a request.

    The kept connection for the same settings sends it; if it fails, a new one does, which is kept.

    Args:
        client: Settings of the client.
        question: Sends the request.

    Raises:
        EbbtideError: see `Asking`.
    """
    settings = frozenset(client.shared_settings().items())
    kept = _kept.get(settings)
    if kept is not None:
        asking = Asking(client, kept)
        try:
            return question(asking)
        except (EbbtideError, library().KafkaException):
            if asking.is_late:
                _forget(settings, kept)
                raise
    asking = Asking(client)
    try:
        answer = question(asking)
    except EbbtideError:
        _forget(settings, kept)
        raise
    _forget(settings, kept)
    _kept[settings] = asking.connection
    for oldest in list(_kept)[:-MOST_KEPT]:
        _kept.pop(oldest, None)
    return answer


def _forget(settings: frozenset[tuple[str, str]], connection: Connection | None) -> None:
    """Forget a connection, unless another thread has replaced it."""
    if connection is not None and _kept.get(settings) is connection:
        _kept.pop(settings, None)


def topic_names(client: Client) -> list[str]:
    """Return the names of a cluster's topics.

    Raises:
        SourceReadError: the brokers refuse the client.
        SourceUnavailableError: they do not answer.
    """
    asking = Asking(client)
    try:
        return list(asking.admin.list_topics(timeout=ANSWER_S).topics)
    except library().KafkaException as error:
        asking.admin.poll(0.1)  # receives the client's reports
        raise unreachable(client.servers, [*asking.permanent(), error.args[0]]) from error


def refused_properties(error: Exception) -> ConfigError:
    """Return the error for properties that the client refuses."""
    return ConfigError.of(
        "The Kafka client refuses the source's properties.",
        got=text_of(error.args[0]),
        next_step="Correct source.properties; librdkafka's CONFIGURATION.md has their values.",
    )


def unreachable(servers: str, errors: list[Any]) -> EbbtideError:
    """Return the error for brokers that do not let the client in, or do not answer.

    Args:
        servers: HOST:PORT, separated by commas.
        errors: The client's reports, the most specific first.
    """
    name = errors[0].name() if errors else ""
    got = text_of(errors[0]) if errors else f"no answer within {ANSWER_S:g} s"
    if name in ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"):
        return SourceReadError.of(
            f"The Kafka brokers '{servers}' refuse the client's credentials.",
            got=got,
            next_step="Correct sasl.username and the variable that sasl.password names in source.properties.",
        )
    if name == "_SSL":
        return SourceReadError.of(
            f"No secure connection to the Kafka brokers is possible: '{servers}'.",
            got=got,
            next_step="Correct security.protocol and the ssl. settings in source.properties.",
        )
    return SourceUnavailableError.of(
        f"The Kafka brokers '{servers}' do not answer.",
        got=got,
        next_step="Start them, or correct source.bootstrap_servers; if they require SASL or SSL, set security.protocol in source.properties.",
    )


def is_telling(error: Any) -> bool:
    """Return whether waiting does not cure an error that the client reports."""
    is_certificate = error.name() == "_SSL" and "certificate" in error.str()
    return is_certificate or error.name() in TELLING


def text_of(error: Any) -> str:
    """Return an error of the client as its name and its words."""
    return f"{error.name()}: {error.str()}"
