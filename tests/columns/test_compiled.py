from functools import cache

from ebbtide.columns import CompiledLoop
from ebbtide.columns import _compiled as compiled


def test_loop_is_compiled_where_there_is_much_to_do_or_numba_is_loaded_anyway(monkeypatch):
    monkeypatch.setattr(compiled, "_compiled", cache(lambda loop, calls: loop))
    assert not CompiledLoop.pays(compiled.COMPILED_FROM - 1)
    assert CompiledLoop.pays(compiled.COMPILED_FROM)
    _ = CompiledLoop(sum).code
    assert CompiledLoop.pays(1)
