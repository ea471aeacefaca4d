"""Many pipelines in one process with one session of Spark, which is opened for those that need it."""

import threading

from local.local_pipeline import LATER, LocalPipeline, up

from ebbtide import Automatic, run
from ebbtide.fleet import Ended, Fleet
from ebbtide.runtime._following import Following

OFTEN = Following(interval_ms=10, tick_every_ms=10**9)


def test_pipelines_that_need_spark_share_a_session_and_the_others_make_their_steps_here(spark, tmp_path):
    engines = {"a": "local", "b": "spark", "c": "auto", "d": "spark"}
    made = {name: LocalPipeline(tmp_path / name, name=name, engine=engine) for name, engine in engines.items()}
    stop = threading.Event()
    opened, left = [], set(engines)

    def open_spark():
        opened.append(threading.current_thread().name)
        return spark

    def on_progress(step):
        if step.records:
            left.discard(step.pipeline)
        if not left:
            stop.set()

    def follow(spec, **given):
        how = {"on_progress": on_progress, "stop": stop, "follow": OFTEN, "clock": lambda: LATER, **given}
        return run(Automatic(open_spark), spec, made[spec.name].root, **how)

    for number, pipeline in enumerate(made.values()):
        pipeline.put(up(1, number))
    events = list(Fleet([pipeline.spec for pipeline in made.values()], follow, stop).events())
    where = {event.spec.name: event.summary.engine.partition(":")[0] for event in events if isinstance(event, Ended)}
    assert where == {"a": "in this process", "b": "on Spark", "c": "in this process", "d": "on Spark"}
    assert opened
    assert [pipeline.rows() for pipeline in made.values()] == [{1: 0}, {1: 1}, {1: 2}, {1: 3}]
