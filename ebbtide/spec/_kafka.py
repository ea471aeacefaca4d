"""A Kafka topic as a pipeline's source."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from ebbtide import sources
from ebbtide.errors import ConfigError
from ebbtide.redaction import REFERENCE, has_unseen, is_credential, redacted

if TYPE_CHECKING:
    from ebbtide.sources import PositionedSource, SourceSettings
from ebbtide.spec._parts import Name, SpecPart, refuse
from ebbtide.spec._positioned import PositionedPart
from ebbtide.spec._reading import explained

BOOTSTRAP_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
"""HOST:PORT."""
REGISTRY = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")
"""A registry's address."""
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Pattern of a topic's name."""
SECRETS = frozenset({"ssl.key.pem", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions"})
"""Properties that are credentials despite their names."""
NO_SECRETS = frozenset({"sasl.oauthbearer.token.endpoint.url"})
"""Properties that are not credentials despite their names."""
WITH_USER = re.compile(r"://[^\s/?#@]*@")
"""An address with a user in it, and perhaps a password."""
PROPERTIES = frozenset(
    {
        "broker.address.family",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "enable.ssl.certificate.verification",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "queued.max.messages.kbytes",
        "receive.message.max.bytes",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.keepalive.enable",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)
"""Client settings that a spec may give: none that runs a command, loads a library or changes the records read."""


class SchemaRegistry(SpecPart):
    """The schema registry of a topic's records: Confluent's or a compatible one."""

    url: str = Field(
        description="Its address, http: or https:; for Apicurio with /apis/ccompat/v7. It may change. Required."
    )
    username: str | None = Field(default=None, description="User name of basic authentication. Default: none.")
    password: str | None = Field(
        default=None, description="The password, as ${NAME}, a variable of the environment. Default: none."
    )
    ca_location: str | None = Field(
        default=None,
        description="File of trusted certificates, PEM, on each machine. Default: the machine's certificates.",
    )

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not REGISTRY.fullmatch(value):
            refuse("url", [redacted(value)], "http://HOST[:PORT][/PATH] or https://..., without credentials")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_both_credentials(self) -> Self:
        if self.password is not None and not REFERENCE.fullmatch(self.password):
            refuse("password", ["a literal"], "${NAME}, a variable of the environment")
        has_name = self.username is not None
        has_password = self.password is not None
        if has_name != has_password:
            refuse("username", ["one without the other"], "username and password, or neither")
        return self


class KafkaSource(PositionedPart):
    """A Kafka topic, read up to its end at the start of a run; only committed records of transactions."""

    listed_as: ClassVar[str] = "topics"

    type: Literal["kafka"] = Field(description="'kafka'.")
    bootstrap_servers: str = Field(
        description="Bootstrap brokers: HOST:PORT, several separated by commas. They may change; another cluster is refused. Required."
    )
    topic: Name = Field(description="The topic. Required.")
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Client settings by librdkafka's names: {security.protocol: SASL_SSL, sasl.password: '${KAFKA_PASSWORD}'}. Credentials only as ${NAME}, a variable of the environment. Default: none, plain text.",
    )
    registry: SchemaRegistry | None = Field(
        default=None,
        description="Values, and possibly keys, are Avro with schemas of this registry, see [SchemaRegistry](#schemaregistry). Default: none, JSON.",
    )

    @classmethod
    def of_options(cls, fields: Mapping[str, Any]) -> Self:
        """Return the source with fields that are not from a file.

        Raises:
            ConfigError: one of them is not usable.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ConfigError.of(f"The options do not make a source. {explained(error)}") from error

    def with_settings(self, settings: SourceSettings) -> PositionedSource:
        """See `PositionedPart.with_settings`."""
        client = sources.Client(self.bootstrap_servers, self.properties, f"ebbtide-{settings.pipeline}")
        registry = self.registry
        if registry is None:
            return sources.KafkaSource(client, self.topic, settings)
        reached = sources.Registry(registry.url, registry.username, registry.password, registry.ca_location)
        return sources.KafkaSource(client, self.topic, settings, reached)

    @field_validator("bootstrap_servers")
    @classmethod
    def _are_servers(cls, value: str) -> str:
        servers = [server.strip() for server in value.split(",")]
        unfit = [redacted(server) or "nothing" for server in servers if not BOOTSTRAP_SERVER.fullmatch(server)]
        refuse("bootstrap_servers", unfit, "HOST:PORT, several separated by commas")
        return ",".join(servers)

    @field_validator("topic")
    @classmethod
    def _is_topic(cls, value: str) -> str:
        if not TOPIC.fullmatch(value):
            refuse("topic", [value], "1 to 249 of letters, digits, '.', '_' and '-'")
        return value

    @field_validator("properties", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Accept YAML's numbers and booleans."""
        if not isinstance(value, dict):
            return value
        return {name: _text_of(each) for name, each in value.items()}

    @field_validator("properties")
    @classmethod
    def _refuse_unfit_properties(cls, value: dict[str, str]) -> dict[str, str]:
        unknown = [name for name in value if name not in PROPERTIES]
        literal = []
        unseen = []
        with_user = [name for name, text in value.items() if WITH_USER.search(text)]
        for name, text in value.items():
            is_reference = REFERENCE.fullmatch(text) is not None
            if is_secret(name) and not is_reference:
                literal.append(name)
            if has_unseen(text) and not name.endswith(".pem"):
                unseen.append(name)
        allowed = ", ".join(sorted(PROPERTIES))
        refuse("properties", unknown, allowed)
        refuse("properties", literal, "credentials as ${NAME}, a variable of the environment")
        refuse("properties", with_user, "addresses without credentials")
        refuse("properties", unseen, "values of visible characters")
        return value

    @property
    def place(self) -> str:
        """The topic."""
        return self.topic

    @property
    def server(self) -> str:
        """The first bootstrap broker."""
        return self.bootstrap_servers.partition(",")[0].strip()

    @property
    def address(self) -> Hashable:
        """The brokers, and the settings to reach them."""
        return self.bootstrap_servers, frozenset(self.properties.items())

    @property
    def identity(self) -> dict[str, Any]:
        """Fields that select the records; brokers and start are compared separately."""
        return {"type": self.type, "topic": self.topic, "table": self.table}


def is_secret(name: str) -> bool:
    """Return whether a property holds a credential.

    Example:
        >>> is_secret("ssl.key.pem"), is_secret("sasl.username")
        (True, False)
    """
    return name in SECRETS or (is_credential(name) and name not in NO_SECRETS)


def _text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value
