import pytest

from ebbtide.errors import ConfigError
from ebbtide.redaction import redacted
from ebbtide.sql import token_of_file, token_of_variable

TOKEN = "a-token-0123456789.~+/="  # noqa: S105 - of no gateway


def test_token_of_a_variable():
    assert token_of_variable("T", {"T": TOKEN}) == TOKEN
    assert TOKEN not in redacted(f"it is {TOKEN}")


def test_token_of_a_file(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(f"{TOKEN}\n")
    assert token_of_file(path) == TOKEN


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666, 0o620])
def test_file_that_other_users_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"mode {mode:o}\. Allowed: a file of mode 600"):
        token_of_file(path)


def test_file_that_is_not_there_or_is_a_folder_is_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            token_of_file(path)


def test_variable_that_is_not_set_is_refused():
    with pytest.raises(ConfigError, match=r"Got: --token-env T\. Set T in the environment"):
        token_of_variable("T", {})


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "with a space in it", "with\nline-break-in-it", "ü" * 20, "x" * 5000]
)
def test_what_is_no_token_is_refused_and_not_shown(token):
    with pytest.raises(ConfigError, match=rf"Got: {len(token)} characters\. Allowed: 16 or more") as caught:
        token_of_variable("T", {"T": token})
    assert not token or token not in str(caught.value)
