"""The metrics as text, by the library of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from ebbtide.inspect._metrics import METRICS, Distribution, Kind, Labels, Metric, Value, Values


class Exposition(Collector):
    """Collects the metrics.

    Args:
        read: Returns the values of the host and of all pipelines.
    """

    def __init__(self, read: Callable[[], Iterable[Values]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        """Yield each metric that has a value."""
        found = list(self._read())
        for metric in METRICS:
            samples = [sample for values in found for sample in values.of(metric.name)]
            if samples:
                yield _family(metric, samples)

    def describe(self) -> list[Family]:
        """Return nothing: values are read lazily."""
        return []


def openmetrics(values: Sequence[Values]) -> str:
    """Write values as OpenMetrics text."""
    write: Callable[[CollectorRegistry], bytes] = generate_latest
    registry = CollectorRegistry()
    registry.register(Exposition(lambda: values))
    return write(registry).decode()


FAMILIES: dict[Kind, Callable[..., Any]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _family(metric: Metric, samples: Iterable[tuple[Labels, Value]]) -> Family:
    """Return a metric with its samples, in the library's form."""
    make = FAMILIES[metric.kind]
    family = make(metric.name, metric.text, labels=metric.label_names, unit=metric.unit)
    for labels, value in samples:
        if isinstance(value, Distribution):
            family.add_metric(labels, value.buckets(), value.total)
        else:
            family.add_metric(labels, value)
    made: Family = family
    return made
