"""The file of a gateway's clients."""

import hashlib
import re

import pytest
from statements.gateway_support import TOKEN, serving

from ebbtide.errors import ConfigError
from ebbtide.redaction import redacted
from ebbtide.sql import read_clients

READERS, WRITERS, OWNERS = "reader-token-of-a-test", "writer-token-of-a-test", "owner-token-of-a-test"
HASHED = f"sha256:{hashlib.sha256(OWNERS.encode()).hexdigest()}"


def written(folder, text, mode=0o600):
    path = folder / "clients"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_each_token_is_of_a_client_with_a_role(tmp_path):
    file = written(
        tmp_path,
        f"""
# role name token
reader dashboard {READERS}
reader  dashboard\t{READERS}-2
writer loader@night {WRITERS}
owner anna {HASHED}
""",
    )
    clients = {
        READERS: ("dashboard", "reader"),
        f"{READERS}-2": ("dashboard", "reader"),
        WRITERS: ("loader@night", "writer"),
        OWNERS: ("anna", "owner"),
        TOKEN: ("default", "owner"),
    }
    with serving(token=TOKEN, clients=read_clients(file)) as gateway:
        for token, client in clients.items():
            info = gateway.call("GET", "/v1/info", headers={"Authorization": f"Bearer {token}"}).json
            assert (info["client"], info["role"]) == client
        for token in (HASHED, f"{OWNERS}x"):
            refused = gateway.call("GET", "/v1/info", headers={"Authorization": f"Bearer {token}"})
            assert refused.status == 401
    for token in (READERS, WRITERS, OWNERS):
        assert redacted(f"it is {token}") == "it is ***"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"reader {READERS}", "Got: 2 fields, .* Allowed: role name token"),
        (f"reader a {READERS} b", "Got: 4 fields"),
        (f"admin a {READERS}", "Got: another first field, .* Allowed: reader, writer, owner"),
        (f"Reader a {READERS}", "Got: another first field"),
        (f"{READERS} a reader", "Got: another first field"),
        (f"reader {READERS} dashboard", "Got: a token of 9 characters"),
        (f"reader default {READERS}", "Got: another second field, .* not 'default'"),
        (f"reader a/b {READERS}", "Got: another second field"),
        (f"reader {'a' * 64} {READERS}", "Got: another second field"),
        ("reader a short", "Got: a token of 5 characters"),
        (f"reader a {'x' * 5000}", "Got: a token of 5000 characters"),
        ("reader a sha256:abc", "Got: 3 characters behind sha256:, .* Allowed: 64 hexadecimal digits"),
        (f"owner a {WRITERS}\nwriter a {READERS}", "Line 3 .* with another role, .* Allowed: one role for a name"),
        (f"owner a {READERS}\nreader b {READERS}", "Line 3 .* Got: a token of another line"),
    ],
)
def test_line_that_is_not_usable_is_refused_without_what_stands_in_it(tmp_path, line, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read_clients(written(tmp_path, f"# clients\n{line}\n"))
    said = str(caught.value)
    assert re.match(r"Line [23] of the file of the gateway's clients is not usable\.", said)
    assert READERS not in said
    assert WRITERS not in said


@pytest.mark.parametrize("text", ["", "\n# none\n"])
def test_file_without_clients_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match="is empty"):
        read_clients(written(tmp_path, text))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_file_that_other_users_may_read_is_refused(tmp_path, mode):
    with pytest.raises(ConfigError, match=rf"mode {mode:o}\. Allowed: a file of mode 600"):
        read_clients(written(tmp_path, f"reader a {READERS}\n", mode))
