"""The client of the brokers, and the meaning of its errors. The library is loaded where it is needed."""

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
"""Seconds that the brokers have to answer a question, so that an error is named within 10 s."""
TELLING = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
"""Errors that say why a client gets no connection, and that do not pass by waiting."""
SHARED_NAME = "ebbtide"
"""The brokers' logs call the client so that looks for all pipelines."""
LAST_REPORTED = 20
"""Reports of a client that are kept."""
MOST_KEPT = 8
"""Connections that are kept: of as many clusters."""
Answer = TypeVar("Answer")
Report = Callable[[Any], None]
"""Takes an error of the client that belongs to no call."""


@dataclass(frozen=True)
class Client:
    """The settings of a client of the brokers; holds no credentials, only the names of variables.

    Args:
        servers: HOST:PORT, separated by commas.
        properties: Settings by librdkafka's names; `${NAME}` is a variable of the environment.
        name: What the brokers' logs call it.
    """

    servers: str
    properties: Mapping[str, str]
    name: str

    def settings(self) -> dict[str, str]:
        """Return the settings with their references followed; these values are shown nowhere from now on.

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
    """A client of the brokers, which many questions may use at the same time.

    Args:
        settings: The client's.

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
        """Take what the client reports beside its answers."""
        self._last.append((self._n_reported, error))
        self._n_reported += 1

    def now(self) -> int:
        """Return the number of the next report: what is reported from then on is of a question that begins now."""
        self.admin.poll(0)
        return self._n_reported

    def reported_since(self, number: int) -> list[Any]:
        """Return the last reports from a number on."""
        return [error for at, error in list(self._last) if at >= number]


class Asking:
    """Asks the brokers; notes what the client reports beside its answers.

    Args:
        client: How they are reached.
        connection: The connection that was kept; None: there is none, and one is made.

    Raises:
        ConfigError: the client refuses a property.
    """

    def __init__(self, client: Client, connection: Connection | None = None) -> None:
        self._client = client
        self._kafka = library()
        self.is_kept = connection is not None
        """Return whether it has been used before: what it knows of the brokers may be old."""
        self.connection = connection or Connection(client.shared_settings())
        self.admin = self.connection.admin
        self._since = self.connection.now()
        self.begin()

    def begin(self) -> None:
        """Begin another question, which has the whole time again: brokers may be slow, and answer."""
        self._end = time.monotonic() + ANSWER_S

    @property
    def _reported(self) -> list[Any]:
        return self.connection.reported_since(self._since)

    def permanent(self) -> list[Any]:
        """Return the reported errors that waiting does not cure."""
        return [error for error in self._reported if is_telling(error)]

    @property
    def is_late(self) -> bool:
        """Return whether the brokers have had the time that they have to answer."""
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
            self.admin.poll(0)  # takes in what the client reports
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
"""The connections whose questions were answered last, by their settings. Without them each look of a continuous run would connect to brokers, and
log in, twice; all pipelines of a process share them."""
atexit.register(_kept.clear)


def answered(client: Client, question: Callable[[Asking], Answer]) -> Answer:
    """Return what the brokers answer. The connection that is kept for the same settings asks; if it fails, a new one does, and is kept.

    Args:
        client: How they are reached.
        question: Asks them.

    Raises:
        EbbtideError: as of `Asking`.
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
    """Keep a connection no longer, unless another thread has put one in its place."""
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
        asking.admin.poll(0.1)  # what the client has to report beside
        raise unreachable(client.servers, [*asking.permanent(), error.args[0]]) from error


def refused_properties(error: Exception) -> ConfigError:
    """Return the error for properties that the client does not take."""
    return ConfigError.of(
        "The Kafka client refuses the source's properties.",
        got=text_of(error.args[0]),
        next_step="Correct source.properties; librdkafka's CONFIGURATION.md has their values.",
    )


def unreachable(servers: str, errors: list[Any]) -> EbbtideError:
    """Return the error for brokers that do not let the client in, or do not answer.

    Args:
        servers: HOST:PORT, separated by commas.
        errors: What the client reported, the most specific first.
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
            f"There is no secure connection to the Kafka brokers '{servers}'.",
            got=got,
            next_step="Correct security.protocol and the ssl. settings in source.properties.",
        )
    return SourceUnavailableError.of(
        f"The Kafka brokers '{servers}' do not answer.",
        got=got,
        next_step="Start them, or correct source.bootstrap_servers; where they ask for SASL or SSL, set security.protocol in source.properties.",
    )


def is_telling(error: Any) -> bool:
    """Return whether an error that the client reports does not pass by waiting."""
    is_certificate = error.name() == "_SSL" and "certificate" in error.str()
    return is_certificate or error.name() in TELLING


def text_of(error: Any) -> str:
    """Return an error of the client as its name and its words."""
    return f"{error.name()}: {error.str()}"
