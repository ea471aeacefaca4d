"""The SQL that specs and statements are written in, for sqlglot. It loads no Arrow: SQL reads statements with it before it needs any."""

from __future__ import annotations

from typing import ClassVar

from sqlglot.dialects.spark import Spark


class SparkSql(Spark):
    """Spark's SQL since 4.0: a doubled quote in a text is a quote (`spark.sql.legacy.consecutiveStringLiterals.enabled`)."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer with doubled quotes."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
