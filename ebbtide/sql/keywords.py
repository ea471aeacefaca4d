"""The words that statements are made of: completed, and coloured."""

from __future__ import annotations

import re

from ebbtide.sql.reference import STATEMENTS

_OF_SPARK = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT RIGHT FULL INNER CROSS ON USING UNION ALL DISTINCT AS AND OR
    NOT NULL IN IS LIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST WITH VALUES OVER PARTITION INTERVAL TRUE FALSE DESC
    ASC OF VERSION
    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL STRING BINARY DATE TIMESTAMP ARRAY MAP STRUCT
"""
_IN_CLAUSES = "COMMENT EVERY CHANGE MANUAL STEP"
"""Those of ours that HELP leaves out."""
_WORD = re.compile(r"[A-Z]{2,}")


def _of_help() -> list[str]:
    """Return the words in capitals of the statements that HELP lists."""
    words = []
    for entries in STATEMENTS.values():
        for entry in entries:
            words += _WORD.findall(entry.syntax)
    return words


KEYWORDS = tuple(dict.fromkeys([*_OF_SPARK.split(), *_of_help(), *_IN_CLAUSES.split()]))
"""Spark's and ours, with the types of columns; the likeliest first."""
