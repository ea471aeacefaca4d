"""Finds SQL that is not deterministic: its result depends on the run, the machine or the order of rows.

Spark marks most of it as not deterministic, or replaces it by current values (`ebbtide.expressions._determinism`). This list was made
from all functions of Spark 4.2 (`SHOW ALL FUNCTIONS`), and includes those that Spark considers deterministic.
"""

from __future__ import annotations

from itertools import pairwise

import sqlglot
from sqlglot import TokenType

OF_THE_RUN = frozenset(
    {
        "COLLATIONS",
        "CURDATE",
        "CURRENT_CATALOG",
        "CURRENT_DATABASE",
        "CURRENT_DATE",
        "CURRENT_PATH",
        "CURRENT_SCHEMA",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "CURRENT_TIMEZONE",
        "CURRENT_USER",
        "LOCALTIMESTAMP",
        "NOW",
        "PYTHON_WORKER_LOGS",
        "SESSION_USER",
        "SQL_KEYWORDS",
        "USER",
        "VERSION",
    }
)
"""Functions of the current time, the session or the installed Spark."""
OF_THE_TASK = frozenset(
    {
        "INPUT_FILE_BLOCK_LENGTH",
        "INPUT_FILE_BLOCK_START",
        "INPUT_FILE_NAME",
        "MONOTONICALLY_INCREASING_ID",
        "SPARK_PARTITION_ID",
    }
)
"""Functions of a row's physical place."""
OF_CHANCE = frozenset(
    {
        "AES_ENCRYPT",  # without an initialization vector it takes a random one
        "JAVA_METHOD",
        "RAND",
        "RANDN",
        "RANDOM",
        "RANDSTR",
        "REFLECT",
        "SHUFFLE",
        "TRY_REFLECT",
        "UNIFORM",
        "UUID",
    }
)
"""Random functions, and functions that call arbitrary code."""
OF_THE_ORDER = frozenset(
    {
        "APPROX_PERCENTILE",
        "APPROX_TOP_K",
        "APPROX_TOP_K_ACCUMULATE",
        "APPROX_TOP_K_COMBINE",
        "HISTOGRAM_NUMERIC",
        "HLL_SKETCH_AGG",
        "HLL_UNION_AGG",
        "KLL_MERGE_AGG_BIGINT",
        "KLL_MERGE_AGG_DOUBLE",
        "KLL_MERGE_AGG_FLOAT",
        "KLL_SKETCH_AGG_BIGINT",
        "KLL_SKETCH_AGG_DOUBLE",
        "KLL_SKETCH_AGG_FLOAT",
        "KLL_SKETCH_MERGE_BIGINT",
        "KLL_SKETCH_MERGE_DOUBLE",
        "KLL_SKETCH_MERGE_FLOAT",
        "MODE",
        "PERCENTILE_APPROX",
        "THETA_INTERSECTION_AGG",
        "THETA_SKETCH_AGG",
        "THETA_UNION_AGG",
        "TUPLE_INTERSECTION_AGG_DOUBLE",
        "TUPLE_INTERSECTION_AGG_INTEGER",
        "TUPLE_SKETCH_AGG_DOUBLE",
        "TUPLE_SKETCH_AGG_INTEGER",
        "TUPLE_UNION_AGG_DOUBLE",
        "TUPLE_UNION_AGG_INTEGER",
    }
)
"""Aggregates whose result depends on the order of rows.

`ebbtide.views.refusals` says when `first`, `collect_list` and the like do.
"""
CHANGING = OF_THE_RUN | OF_THE_TASK | OF_CHANCE | OF_THE_ORDER
"""All of them, in capitals."""
_OF_TIME = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_MOMENTS = frozenset({"NOW", "TODAY", "TOMORROW", "YESTERDAY"})
_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)


def what_changes(text: str) -> str | None:
    """Return the part of an SQL text whose value changes by itself; None: none that the text shows.

    A call is recognized by name and parenthesis. A literal such as DATE 'today' must be found here: for Spark it is a constant.

    Args:
        text: An expression or a query, Spark SQL.

    Raises:
        ValueError: it cannot be split into tokens.

    Example:
        >>> what_changes("aes_encrypt(v, k)"), what_changes("DATE 'today'"), what_changes("DATE '2024-02-29'")
        ('AES_ENCRYPT', "DATE 'TODAY'", None)
    """
    try:
        tokens = sqlglot.tokenize(text, read="spark")
    except sqlglot.errors.TokenError as error:
        raise ValueError(str(error)) from error
    for token, following in pairwise(tokens):
        if token.token_type in _TEXTS:
            continue
        word = token.text.upper()
        value = following.text.strip().upper()
        if following.token_type is TokenType.L_PAREN and word in CHANGING:
            return word
        if following.token_type in _TEXTS and word in _OF_TIME and value in _MOMENTS:
            return f"{word} '{value}'"
    return None


def has_collation(text: str) -> bool:
    """Return whether an SQL text compares texts by a collation.

    Args:
        text: A query, Spark SQL, that can be split into tokens.

    Example:
        >>> has_collation("SELECT y COLLATE UNICODE_CI FROM a"), has_collation("SELECT 'COLLATE'")
        (True, False)
    """
    tokens = sqlglot.tokenize(text, read="spark")
    return any(token.token_type is TokenType.COLLATE for token in tokens)
