"""Requests the schemas that records name from a schema registry. A process keeps all answers."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from ebbtide.environment import from_environment
from ebbtide.errors import ConfigError, EbbtideError, MissingExtraError, SourceReadError, SourceUnavailableError
from ebbtide.redaction import hide
from ebbtide.sources._kafka.client import ANSWER_S

MOST_BYTES = 16 * 2**20
"""Maximum bytes of an answer."""
NO_SCHEMA = 40403
"""Status of a registry's answer about an id that it does not have."""
NO_ID = 0
"""An id that no registry assigns: the answer shows whether a registry exists."""
_known: dict[tuple[str, int], str] = {}
_answered: set[OpenRegistry] = set()
"""Registries that have answered this process."""


@dataclass(frozen=True)
class Registry:
    """The settings of a registry's client. They contain no credentials, only names of variables.

    Args:
        url: Its address.
        username: User name of basic authentication; None: none.
        password: `${NAME}`, a variable of the environment.
        ca_location: File of trusted certificates; None: the machine's.
    """

    url: str
    username: str | None = None
    password: str | None = None
    ca_location: str | None = None

    def open(self) -> OpenRegistry:
        """Return the registry with variables resolved.

        It is contacted once per process, so that errors appear before tasks start.

        Raises:
            ConfigError: a variable is not set.
            MissingExtraError: Avro cannot be read here.
            SourceReadError: it refuses the client, or it is not a registry.
            SourceUnavailableError: it does not answer.
        """
        refuse_missing_avro()
        opened = self._opened()
        if opened not in _answered:
            opened.refuse_absent()
            _answered.add(opened)
        return opened

    def _opened(self) -> OpenRegistry:
        if self.username is None:
            return OpenRegistry(self.url, None, self.ca_location)
        password = from_environment("The property 'registry.password' of the Kafka source", self.password or "")
        credentials = base64.b64encode(f"{self.username}:{password}".encode()).decode()
        hide(credentials)
        return OpenRegistry(self.url, credentials, self.ca_location)


@dataclass(frozen=True)
class OpenRegistry:
    """A registry that can be queried; sent to the workers.

    Args:
        url: Its address.
        credentials: Credentials of basic authentication, which messages must not show; None: none.
        ca_location: See `Registry`.
    """

    url: str
    credentials: str | None = field(repr=False)
    ca_location: str | None

    def refuse_absent(self) -> None:
        """Request a missing schema, to see whether a registry answers.

        Raises:
            SourceReadError: it refuses the client, or it is not a registry.
            SourceUnavailableError: it does not answer.
        """
        self._ask(f"schemas/ids/{NO_ID}", may_be_denied=True)

    def schemas(self, ids: Iterable[int]) -> dict[int, str]:
        """Return its answers for some schemas; see `ebbtide.formats._avro.SchemaTexts`.

        Raises:
            SourceReadError: it refuses the client, or it is not a registry.
            SourceUnavailableError: it does not answer.
        """
        return {id_: self._schema(id_) for id_ in sorted(ids)}

    def _schema(self, id_: int) -> str:
        place = self.url, id_
        if place not in _known:
            found = self._ask(f"schemas/ids/{id_}")
            if found is None:  # it may be registered later
                return json.dumps({"error": f"got schema {id_}, which the registry '{self.url}' does not have"})
            _known[place] = json.dumps(self._answer(id_, found))
        return _known[place]

    def _answer(self, id_: int, found: Any) -> dict[str, Any]:
        kind = found.get("schemaType") or "AVRO"
        if kind != "AVRO":
            return {"error": f"got schema {id_}, which is {kind}; allowed: AVRO"}
        referred = self._referred(found)
        own = json.loads(found["schema"])
        return {"schemas": [*referred, own]}

    def _referred(self, found: Any) -> list[Any]:
        """Return the schemas that a schema refers to, recursively, referenced schemas first."""
        schemas: list[Any] = []
        for reference in found.get("references") or ():
            subject = str(reference["subject"])
            version = int(reference["version"])
            quoted = quote(subject, safe="")
            referred = self._ask(f"subjects/{quoted}/versions/{version}")
            if referred is None:
                raise self._strange(f"no version {version} of subject {subject}, which a schema refers to")
            schemas += self._referred(referred)
            own = json.loads(referred["schema"])
            schemas.append(own)
        return schemas

    def _ask(self, path: str, *, may_be_denied: bool = False) -> Any:
        """Return an answer; None if the schema does not exist.

        Args:
            path: Path of the request.
            may_be_denied: A refusal may concern only this subject.
        """
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.credentials is not None:
            headers["Authorization"] = f"Basic {self.credentials}"
        request = Request(f"{self.url}/{path}", headers=headers)  # noqa: S310 - the spec takes http and https only
        try:
            with self._opener().open(request, timeout=ANSWER_S) as response:
                return _json_object(response.read(MOST_BYTES))
        except HTTPError as error:
            if may_be_denied and error.code == HTTPStatus.FORBIDDEN:
                return None
            return self._refused(error)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error
        except ValueError as error:
            raise self._strange(f"an answer that is not a registry's: {error}") from error

    def _opener(self) -> OpenerDirector:
        try:
            context = ssl.create_default_context(cafile=self.ca_location)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError.of(
                "The certificates of source.registry.ca_location cannot be read.",
                got=f"{self.ca_location}: {error}",
                allowed="a file of certificates in PEM, on each machine",
            ) from error
        return build_opener(HTTPSHandler(context=context), _NoRedirects())

    def _refused(self, error: HTTPError) -> None:
        """Return None if the schema does not exist; otherwise raise."""
        with error:
            body = error.read(MOST_BYTES)
        if error.code in (401, 403):
            raise SourceReadError.of(
                f"The schema registry '{self.url}' refuses the client's credentials.",
                got=f"HTTP {error.code}",
                next_step="Correct source.registry.username and the variable that source.registry.password names.",
            )
        if error.code == 429 or error.code >= 500:
            raise self._unavailable(f"HTTP {error.code}")
        if error.code == 404 and _error_code(body) == NO_SCHEMA:
            return
        raise self._strange(f"HTTP {error.code}")

    def _unreachable(self, error: Exception) -> EbbtideError:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError):
            return SourceReadError.of(
                f"No secure connection to the schema registry is possible: '{self.url}'.",
                got=reason,
                next_step="Correct source.registry.url or source.registry.ca_location.",
            )
        return self._unavailable(str(reason) or type(reason).__name__)

    def _unavailable(self, got: str) -> SourceUnavailableError:
        return SourceUnavailableError.of(
            f"The schema registry '{self.url}' does not answer; nothing of the step was committed.",
            got=got,
            next_step="Start it, or correct source.registry.url.",
        )

    def _strange(self, got: str) -> SourceReadError:
        return SourceReadError.of(
            f"There is no usable schema registry at '{self.url}'.",
            got=got,
            next_step="Correct source.registry.url: for Apicurio it ends in /apis/ccompat/v7.",
        )


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, which would get the credentials."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse it."""


def refuse_missing_avro() -> None:
    """Refuse to continue without the Avro library.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise MissingExtraError.of_extra("kafka", "fastavro") from error


def _json_object(body: bytes) -> Any:
    found = json.loads(body)
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise ValueError("not a JSON object with a schema")  # noqa: TRY004 - like other unfit JSON
    return found


def _error_code(body: bytes) -> Any:
    try:
        return json.loads(body).get("error_code")
    except (ValueError, AttributeError):
        return None
