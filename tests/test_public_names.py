import importlib
import inspect
import pkgutil

import pytest

import ebbtide

MODULES = ["ebbtide", *(m.name for m in pkgutil.walk_packages(ebbtide.__path__, "ebbtide."))]
PUBLIC = [name for name in MODULES if not any(part.startswith("_") for part in name.split("."))]
ROOMS = sorted({".".join(name.split(".")[:2]) for name in PUBLIC})


def modules_of(room):
    names = [name for name in PUBLIC if name == room or (room != "ebbtide" and name.startswith(f"{room}."))]
    return {name: importlib.import_module(name) for name in names}


def without_docstring(owner, module):
    """Names of an owner's public classes, functions and methods that say nothing of themselves."""
    for name, found in vars(owner).items():
        thing = found.fget if isinstance(found, property) else getattr(found, "func", getattr(found, "__func__", found))
        ours = getattr(thing, "__module__", None) == module
        if (
            name.startswith("_")
            or not name.isidentifier()
            or not ours
            or not (inspect.isclass(thing) or inspect.isfunction(thing))
        ):
            continue
        if not (vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__):
            yield f"{owner.__name__}.{name}"
        if inspect.isclass(thing):
            yield from without_docstring(thing, module)


@pytest.mark.parametrize("room", ROOMS)
def test_public_modules_and_all_in_them_have_docstrings(room):
    for name, module in modules_of(room).items():
        assert module.__doc__, name
        assert list(without_docstring(module, name)) == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_exported_name_exists(room):
    for name, module in modules_of(room).items():
        exported = getattr(module, "__all__", [])
        assert [n for n in exported if not hasattr(module, n)] == [], name
        assert len(exported) == len(set(exported)), name


def test_every_module_is_looked_at():
    assert sum(len(modules_of(room)) for room in ROOMS) == len(PUBLIC)


def test_package_exports_its_names():
    assert {"UpsertPipeline", "StateTtlConfig", "RowKind"} <= set(ebbtide.__all__)
    assert len(PUBLIC) > 20
