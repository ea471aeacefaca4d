"""The settings that a gateway's clients may give, when they open a session and by SET; all else is its operator's.

A setting of Spark or Hadoop can make the gateway's process load a class, read a folder, or call a host with its credentials.
So clients give those of a list. The operator gives any, in the environment's file.
"""

from __future__ import annotations

from ebbtide.errors import GatewayError
from ebbtide.sql import statements as ast
from ebbtide.sql.settings import SETTINGS, SPARK
from ebbtide.sql.statements import Parsed

OF_SPARK = frozenset(
    {
        "spark.sql.adaptive.advisoryPartitionSizeInBytes",
        "spark.sql.adaptive.coalescePartitions.enabled",
        "spark.sql.adaptive.enabled",
        "spark.sql.adaptive.skewJoin.enabled",
        "spark.sql.ansi.enabled",
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.broadcastTimeout",
        "spark.sql.crossJoin.enabled",
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "spark.sql.files.maxPartitionBytes",
        "spark.sql.join.preferSortMergeJoin",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.mapKeyDedupPolicy",
        "spark.sql.pivotMaxValues",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
    }
)
"""Settings of Spark that say how a query is computed, and nothing of what it reaches."""


def refuse_setting(key: str) -> None:
    """Refuse a setting that is the operator's. A name that no session knows is left to the session to refuse.

    Raises:
        GatewayError: it is.
    """
    is_of_spark = key.lower().startswith(SPARK)
    if not is_of_spark or key in OF_SPARK:
        return
    raise GatewayError.of(
        f"The setting '{key}' is not set by a gateway's clients.",
        got=key,
        allowed=", ".join([*SETTINGS, *sorted(OF_SPARK)]),
        next_step="The gateway's operator can set it in the environment's file.",
    )


def refuse_configuring(asked: Parsed) -> None:
    """Refuse SET and RESET of a setting that is the operator's; to show one is allowed.

    Raises:
        GatewayError: it is.
    """
    is_set = isinstance(asked, ast.SetOption) and asked.value is not None
    is_changed = is_set or isinstance(asked, ast.Reset)
    if isinstance(asked, ast.SetOption | ast.Reset) and is_changed and asked.key is not None:
        refuse_setting(asked.key)
