"""Specs beyond a bound are refused at once, and the error says which bound; smaller ones are read as before."""

import pytest
import yaml

from ebbtide import load
from ebbtide.errors import ConfigError
from ebbtide.spec import read_yaml

MOST_BYTES = 1 << 20
MOST_DEPTH = 64
MOST_NODES = 50_000


GOOD = """
type: ebbtide.UpsertPipeline
attributes:
  name: t
  source: {path: in, records: value}
  format: {type: plain}
  schema: id BIGINT
  key: [id]
  order: arrival
"""


def bomb(levels, width=9):
    """Return lists of aliases of lists: `width ** levels` values."""
    lines = ["x0: &x0 [" + ",".join("a" * width) + "]"]
    for level in range(1, levels):
        aliases = ",".join([f"*x{level - 1}"] * width)
        lines.append(f"x{level}: &x{level} [{aliases}]")
    return "\n".join(lines)


def merges(levels):
    """Return mappings that merge the one before twice, under another name."""
    lines = ["x0: &x0 {a: 1}"]
    lines += [f"x{n}: &x{n} {{b: *x{n - 1}, <<: *x{n - 1}}}" for n in range(1, levels)]
    return "\n".join(lines)


BEYOND = {
    "large": (f"z: {'x' * MOST_BYTES}", f"larger than {MOST_BYTES:,} bytes"),
    "wide": (f"z: [{'a,' * (MOST_NODES + 1)}]", f"more than {MOST_NODES:,} values"),
    "bomb": (bomb(9), f"more than {MOST_NODES:,} values"),
    "merges": (merges(40), f"more than {MOST_NODES:,} values"),
    "brackets": (f"z: {'[' * 20_000}{']' * 20_000}", f"deeper than {MOST_DEPTH} levels"),
    "braces": (f"z: {'{a: ' * 1_000}{'}' * 1_000}", f"deeper than {MOST_DEPTH} levels"),
    "dashes": (f"z:\n {'- ' * 5_000}", f"deeper than {MOST_DEPTH} levels"),
    "keys": (f"{'? ' * 500}a", f"deeper than {MOST_DEPTH} levels"),
    "own alias": ("z: &z [*z]", "an alias is within its own target"),
    "own merge": ("z: &z {<<: *z}", "an alias is within its own target"),
}


@pytest.mark.parametrize("case", BEYOND)
def test_spec_beyond_a_bound_is_refused_and_the_error_names_it(tmp_path, case):
    text, said = BEYOND[case]
    file = tmp_path / "defs.yaml"
    file.write_text(f"{GOOD}{text}\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    shown = str(caught.value)
    assert said in shown
    assert f"Allowed: a defs.yaml, or a folder with one: YAML of {MOST_BYTES:,} bytes" in shown
    assert len(shown) < 500


WITHIN = [
    "a: &x {b: [1, 2]}\nc: *x\nd: {<<: *x, e: 1}",
    bomb(3),
    f"z: {'[' * (MOST_DEPTH - 1)}{']' * (MOST_DEPTH - 1)}",
    "[1, 1.5, true, null, 2024-01-01, 0x1f, 'a', \"b\\n\"]",
    "",
]


@pytest.mark.parametrize("text", WITHIN)
def test_text_within_the_bounds_is_what_a_safe_loader_makes_of_it(text):
    assert read_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [x]", "!!python/name:os.system", "a: ["])
def test_tags_of_python_and_broken_texts_are_refused(text):
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)
