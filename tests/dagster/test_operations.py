"""Jobs of operations: what their runs log."""

from types import SimpleNamespace

from operating import operation_named

from ebbtide.dagster.operations import _Observer
from ebbtide.runtime import Phase


def test_phase_outside_of_steps_is_a_line_of_the_run_s_log():
    lines = []
    log = SimpleNamespace(info=lambda form, *values: lines.append(form % values))
    observer = _Observer(SimpleNamespace(log=log), operation_named("cleanup"), "apply", None)
    observer.progress(Phase("orders", "cleanup, step 7"))
    observer.progress(Phase("orders", "reading", step=8))
    assert lines == ["orders: cleanup, step 7"]
