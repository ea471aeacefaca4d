"""Rules that a pipeline's tables must keep.

Each rule has two parts in SQL: a query for the rows to judge, and a condition that selects rows that break the rule. The same SQL
runs in this process on Arrow, or on Spark for large inputs.

`checks_of` returns the `Check`s of a pipeline. Each judges a `VersionRange`, which ends with the `Newest` versions, by `Engines`, and returns a
`Verdict` with its `Finding`s; `Wording` puts these in words.
"""

from typing import TYPE_CHECKING

from ebbtide.doors import names_of

if TYPE_CHECKING:
    from ebbtide.checks._engines import Engines as Engines
    from ebbtide.checks._version_range import Newest as Newest
    from ebbtide.checks._version_range import VersionRange as VersionRange
    from ebbtide.checks.great_expectations.checks import Check as Check
    from ebbtide.checks.great_expectations.checks import checks_of as checks_of
    from ebbtide.checks.great_expectations.verdict import Finding as Finding
    from ebbtide.checks.great_expectations.verdict import Verdict as Verdict
    from ebbtide.checks.great_expectations.wording import Wording as Wording
else:
    __getattr__, __all__ = names_of(__name__)
