from functools import cache

from ebbtide.columns import _compiled as compiled


def test_loop_is_compiled_where_there_is_much_to_do_or_numba_is_loaded_anyway(monkeypatch):
    monkeypatch.setattr(compiled, "compiled", cache(lambda loop: loop))
    assert not compiled.worth_compiling(compiled.COMPILED_FROM - 1)
    assert compiled.worth_compiling(compiled.COMPILED_FROM)
    compiled.compiled(sum)
    assert compiled.worth_compiling(1)
