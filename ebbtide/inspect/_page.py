"""A page on pipelines for a person who operates them: one HTML file, without a script, that needs no server and can be printed.

It shows what `status`, `ebbtide runs`, the checks, the quarantine and the state's log say. All text is escaped, and the page may load nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from html import escape
from itertools import islice

from ebbtide.amounts import amount, in_words
from ebbtide.delta import Log, Snapshot
from ebbtide.errors import EbbtideError
from ebbtide.inspect._quarantine import QuarantinedRecord, QuarantineSummary
from ebbtide.inspect._status import Status, status, time_of
from ebbtide.ledger import KeptRun, StepFacts
from ebbtide.redaction import printable, shown
from ebbtide.runtime import Plan, system_clock
from ebbtide.spec import Pipeline
from ebbtide.tables import Selection

MOST_STEPS = 300
"""Newest steps that are plotted."""
MOST_RUNS = 25
"""Newest runs that are listed."""
MOST_RECORDS = 10
"""Bad records that are shown."""
DAY_MS = 86_400_000
WIDTH, HEIGHT, TOP = 320, 90, 32
"""Size of a plot, and of the room above it, pixels."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser may load nothing for the page but its own styles."""
STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; background: #fff }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #d8dee4; vertical-align: top; overflow-wrap: anywhere }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f8fa; padding: .6rem } .plots { display: flex; flex-wrap: wrap; gap: 1rem } .plots svg { flex: 0 1 19rem; height: auto } section { margin-bottom: 3rem }
.level { padding: .1rem .5rem; border: 1px solid; border-radius: .6rem; font-size: .8em } .healthy { color: #116329 } .paused { color: #0550ae } .attention { color: #7d4e00 } .refused { color: #a40e26 }
@media print { body { margin: 0; max-width: none } section { break-before: page } section:first-of-type { break-before: auto } table, svg, pre { break-inside: avoid } }
"""
Rows = Iterable[Sequence[object]]
Points = list[tuple[int, float]]
"""Times, epoch ms, and values."""


def page(
    specs: Sequence[Pipeline],
    root: str,
    due: Callable[[Pipeline], Iterable[str]],
    clock_ms: int | None = None,
    differing: Callable[[Pipeline, str], Iterable[Sequence[object]]] = lambda spec, check: (),
) -> str:
    """Return the page on some pipelines as HTML.

    Args:
        specs: The pipelines.
        root: Folder of all pipelines' tables.
        due: Says which maintenance of one is due.
        clock_ms: The time, epoch ms. Default: now.
        differing: Returns some rows that a failed check of one finds: each the rule and the row. Default: none are shown.
    """
    now_ms = system_clock() if clock_ms is None else clock_ms
    sections = [_Section(spec, root, now_ms, differing).html(due(spec)) for spec in specs]
    title = "Pipelines: " + ", ".join(spec.name for spec in specs)
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>{_text(title)}</title><style>{STYLE}</style>'
    )
    body = f"<h1>{_text(title)}</h1><p>As of {_time(now_ms)}.</p>{''.join(sections)}"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


class _Section:
    """The part of the page on one pipeline.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        now_ms: The time, epoch ms.
        differing: See `page`.
    """

    def __init__(
        self,
        spec: Pipeline,
        root: str,
        now_ms: int,
        differing: Callable[[Pipeline, str], Iterable[Sequence[object]]],
    ) -> None:
        self._spec = spec
        self._differing = differing
        self._root = root
        self._now_ms = now_ms
        self._plan = Plan.under(root, spec)

    def html(self, due: Iterable[str]) -> str:
        """Return it; a part that cannot be read says why.

        Args:
            due: Maintenance that is due.
        """
        found = status(self._spec, self._root, clock_ms=self._now_ms)
        head = f'<h2>{_text(found.pipeline)} <span class="level {found.level}">{found.level}</span></h2>'
        parts: list[Callable[[], Iterator[str]]] = [
            lambda: iter([f"<pre>{_text(found.text())}</pre>"]),
            lambda: self._numbers(found),
            self._steps,
            self._runs,
            lambda: self._checks(found),
            *(partial(self._rows_that_differ, check.check) for check in found.checks if check.outcome == "failed"),
            self._quarantine,
            lambda: _list("Maintenance due", due),
        ]
        return f"<section>{head}{''.join(html for part in parts for html in _read(part))}</section>"

    def _numbers(self, found: Status) -> Iterator[str]:
        waiting = found.next_run.waiting
        day = [run for run in self._kept if run.at_ms > self._now_ms - DAY_MS]
        seconds = sum(run.seconds or 0 for run in day)
        cpu_seconds = sum(run.cpu_seconds or 0 for run in day)
        written = amount(self._written_since(self._now_ms - DAY_MS), "byte")
        n_bytes = (found.state.bytes or 0) + (found.sink.bytes or 0)
        yield _table(
            "Numbers",
            ("what", "now"),
            [
                ("lag", "unknown" if waiting is None else waiting.text()),
                ("sink", "unknown" if found.sink.rows is None else amount(found.sink.rows, "row")),
                ("state", "unknown" if found.state.rows is None else amount(found.state.rows, "row")),
                ("stored by state and sink", amount(n_bytes, "byte")),
                ("runs of the last day", f"{amount(len(day), 'run')}, {in_words(round(seconds * 1000))}"),
                ("cost of the last day", f"{in_words(round(cpu_seconds * 1000))} of CPU time; {written} written"),
            ],
        )

    def _written_since(self, since_ms: int) -> int:
        """Return the bytes of data files that commits to state and sink have written since a time, of the newest commits."""
        n_bytes = 0
        for name in ("state", "sink"):
            newest = Snapshot.read(self._plan.at(name), any_features=True)
            version = -1 if newest is None else newest.version
            for number in range(version, max(version - MOST_STEPS, -1), -1):
                commit = Log(self._plan.at(name)).commit(number)
                if commit.info().get("timestamp", 0) < since_ms:
                    break
                n_bytes += sum(add["size"] for add in commit.adds())
        return n_bytes

    def _steps(self) -> Iterator[str]:
        steps = [facts for _, facts in islice(self._plan.state.steps(), MOST_STEPS)][::-1]

        def points(value: Callable[[StepFacts], float]) -> Points:
            return [(facts.now_ms, value(facts)) for facts in steps]

        yield '<h3>Steps</h3><div class="plots">'
        yield _plot("records read by step", points(lambda facts: facts.read.records))
        yield _plot("entries expired by step", points(lambda facts: facts.decision.counts.get("expired", 0)))
        yield _plot("bad records by step", points(lambda facts: facts.read.quarantined))
        yield "</div>"

    @cached_property
    def _kept(self) -> list[KeptRun]:
        return KeptRun.all_of(self._plan.root, self._plan.ledger.turn)

    def _runs(self) -> Iterator[str]:
        kept = self._kept
        timed = [(run.at_ms, run.seconds) for run in reversed(kept) if run.seconds is not None]
        yield '<h3>Runs</h3><div class="plots">'
        yield _plot("seconds by run", [(at_ms, seconds or 0.0) for at_ms, seconds in timed])
        yield "</div>"
        rows = [
            (
                _time(run.at_ms),
                run.job,
                run.outcome,
                f"{run.error}: {run.message}" if run.error else "",
                run.host,
                f"{run.first_step} to {run.last_step}" if run.last_step is not None else "",
                f"{run.records:,}",
                "" if run.seconds is None else f"{run.seconds:.1f}",
            )
            for run in kept[:MOST_RUNS]
        ]
        yield _table("", ("end", "job", "outcome", "error", "host", "steps", "records", "seconds"), rows)

    def _checks(self, found: Status) -> Iterator[str]:
        rows = [
            (
                verdict.check,
                verdict.outcome,
                f"{verdict.broken:,}",
                _time(verdict.at_ms),
                f"ebbtide check --only {verdict.check}" if verdict.outcome == "failed" else "",
            )
            for verdict in found.checks
        ]
        yield _table("Checks", ("check", "outcome", "rows that differ", "judged", "shows them"), rows)

    def _rows_that_differ(self, check: str) -> Iterator[str]:
        rows = list(self._differing(self._spec, check))
        if rows:
            yield _table(f"Some rows that '{check}' finds", ("rule", "row"), rows)

    def _quarantine(self) -> Iterator[str]:
        counted = QuarantineSummary.of(self._spec, self._root)
        reasons = [(each.reason, f"{each.records:,}", _time_of_text(each.text())) for each in counted.reasons]
        yield _table("Quarantine", ("reason", "records", "when"), reasons)
        if reasons:
            records = QuarantinedRecord.listed(self._spec, self._root, Selection(limit=MOST_RECORDS))
            rows = [(record.step, record.reason, record.detail, record.text()) for record in records]
            yield _table("", ("step", "reason", "detail", "record"), rows)


def _read(part: Callable[[], Iterator[str]]) -> list[str]:
    """Return the HTML of a part, or why it cannot be read."""
    try:
        return list(part())
    except EbbtideError as error:
        return [f"<p>{_text(error)}</p>"]


def _text(value: object) -> str:
    """Return a value as text of the page: without credentials and control characters, escaped."""
    lines = shown(str(value)).split("\n")
    return escape("\n".join(map(printable, lines)))


def _time(ms: int) -> str:
    return f"{time_of(ms):%Y-%m-%d %H:%M:%S} UTC"


def _time_of_text(text: str) -> str:
    """Return the steps and times of a count, behind its reason and its number."""
    return text.partition(", ")[2]


def _table(title: str, names: Sequence[str], rows: Rows) -> str:
    """Return a table under a title; without rows that there are none."""
    head = f"<h3>{_text(title)}</h3>" if title else ""
    body = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows)
    if not body:
        return f"{head}<p>none</p>"
    columns = "".join(f"<th>{_text(name)}</th>" for name in names)
    return f"{head}<table><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>"


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    yield f"<h3>{_text(title)}</h3>{f'<ul>{items}</ul>' if items else '<p>none</p>'}"


def _plot(title: str, points: Points) -> str:
    """Return a plot of values over time as SVG, with its greatest value and its first and last time; nothing of fewer than two points."""
    if len(points) < 2:
        return ""
    first_ms, last_ms = points[0][0], points[-1][0]
    width_ms = max(last_ms - first_ms, 1)
    most = max(value for _, value in points)
    scale = (HEIGHT - TOP) / (most or 1)
    line = " ".join(
        f"{WIDTH * (at_ms - first_ms) / width_ms:.1f},{HEIGHT - value * scale:.1f}" for at_ms, value in points
    )
    most_text = f"{title}: at most {most:,.6g}"
    times = f"{_time(first_ms)} to {_time(last_ms)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{_text(f"{most_text}, {times}")}">'
        f'<text x="0" y="12" font-size="12">{_text(most_text)}</text>'
        f'<text x="0" y="26" font-size="9" fill="#57606a">{_text(times)}</text>'
        f'<line x1="0" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}" stroke="#d8dee4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0550ae" stroke-width="1.5"/></svg>'
    )
