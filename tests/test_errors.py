import inspect

import pytest

from ebbtide import errors
from ebbtide.errors import ConfigError, EbbtideError, LateFileError, SourceReadError, Terminal, Transient

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, EbbtideError)]
SITUATIONS = [kind for kind in KINDS if kind not in (EbbtideError, Terminal, Transient)]
TRACEBACK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times (executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "files.py", line 170, in read_lines
    for line in stream:
OSError: zlib inflate failed

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 2000, in main
    process()
{last}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "It broke."),
        ({"got": 0}, "It broke. Got: 0."),
        ({"next_step": "Mend it."}, "It broke. Mend it."),
        ({"next_step": "Mend it.", "allowed": "b", "got": "a"}, "It broke. Got: a. Allowed: b. Mend it."),
    ],
)
def test_message_has_its_parts_in_one_order(parts, message):
    error = ConfigError.of("It broke.", **parts)
    assert (str(error), type(error)) == (message, ConfigError)


@pytest.mark.parametrize("kind", SITUATIONS, ids=lambda kind: kind.__name__)
def test_every_situation_is_either_terminal_or_transient(kind):
    assert issubclass(kind, Terminal) != issubclass(kind, Transient)
    assert kind.__name__.endswith("Error")


@pytest.mark.parametrize("kind", SITUATIONS, ids=lambda kind: kind.__name__)
def test_within_finds_the_error_of_a_worker_in_a_traceback(kind):
    message = "The source file 'a: b' cannot be read. Got: x."
    found = EbbtideError.within(RuntimeError(TRACEBACK.format(last=f"ebbtide.errors.{kind.__name__}: {message}")))
    assert (type(found), str(found)) == (kind, message)


@pytest.mark.parametrize(
    "last",
    [
        "ValueError: ebbtide.errors.ConfigError: inside a sentence",
        "  ebbtide.errors.ConfigError: indented",
        "other.ebbtide.errors.ConfigError: of others",
        "ebbtide.errors.NoSuchError: unknown",
        "ebbtide.errors.re: no class",
        "ebbtide.errors.Self: no error",
    ],
)
def test_within_finds_nothing_where_no_error_of_ours_is(last):
    assert EbbtideError.within(RuntimeError(TRACEBACK.format(last=last))) is None


def test_within_takes_the_first_of_ours():
    last = "ebbtide.errors.re: x\nebbtide.errors.SourceReadError: first\nebbtide.errors.LateFileError: second"
    found = EbbtideError.within(RuntimeError(TRACEBACK.format(last=last)))
    assert (type(found), str(found)) == (SourceReadError, "first")
    assert not isinstance(found, LateFileError)
