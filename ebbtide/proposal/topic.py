"""A topic as a command's options name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ebbtide.errors import ConfigError
from ebbtide.spec.kafka import KafkaSource
from ebbtide.spec.pipeline import explained


def usable_topic(source: Mapping[str, Any]) -> KafkaSource:
    """Return the source as a spec would have it.

    Args:
        source: Its fields.

    Raises:
        ConfigError: one of them is not usable.
    """
    try:
        return KafkaSource.model_validate(source)
    except ValidationError as error:
        raise ConfigError.of(f"The options do not make a source. {explained(error)}") from error
