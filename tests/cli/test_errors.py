"""Exit codes of errors, for a service manager."""

import re
from pathlib import Path

import pytest
from frame.exit_codes import FAILED, PAUSED, REFUSED, USAGE

from ebbtide.cli.errors import exit_code
from ebbtide.errors import (
    ConfigError,
    LeaseHeldError,
    PausedError,
    QuarantineThresholdError,
    SourceLostError,
    SourceReadError,
    SourceUnavailableError,
    Terminal,
    Transient,
)

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "ebbtide@.service"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (SourceUnavailableError, FAILED),
        (LeaseHeldError, FAILED),
        (ConfigError, USAGE),
        (PausedError, PAUSED),
        (SourceLostError, REFUSED),
        (SourceReadError, REFUSED),
        (QuarantineThresholdError, REFUSED),
    ],
)
def test_what_a_restart_does_not_mend_ends_with_another_code_than_what_may_pass(kind, code):
    assert exit_code(kind("x")) == code


def test_sample_unit_is_started_again_after_what_may_pass_and_not_after_what_needs_somebody():
    [named] = re.findall(r"^RestartPreventExitStatus=(.+)$", UNIT.read_text(), re.MULTILINE)
    not_again = [int(code) for code in named.split()]
    for kind in Terminal.__subclasses__():
        # What is paused goes on by itself once it is resumed.
        assert (exit_code(kind("x")) in not_again) == (kind is not PausedError), kind
    for kind in Transient.__subclasses__():
        assert exit_code(kind("x")) not in not_again, kind
