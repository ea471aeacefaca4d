"""Records that are read again into a sink, as far as it needs no broker: what is refused."""

import pytest
from local.support import plain

from ebbtide.errors import BackfillError, ConfigError

TOPIC = {"type": "kafka", "bootstrap_servers": "127.0.0.1:1", "topic": "t"}


@pytest.mark.parametrize(
    ("fields", "reason", "said"),
    [
        (
            {"source": TOPIC},
            " \n",
            "Reading records again needs a reason. Got: none. Allowed: a text, kept with the steps.",
        ),
        (
            {},
            "why",
            (
                "'t' cannot read records again into its sink. Got: a folder, whose files are read once. Allowed: a topic, with"
                " order: {sequence: ...}. Build new tables: 'ebbtide backfill start'."
            ),
        ),
        (
            {"source": TOPIC, "order": "arrival"},
            "why",
            (
                "'t' cannot read records again into its sink. Got: order: arrival, where a record that is read again applies again."
                " Allowed: a topic, with order: {sequence: ...}. Build new tables: 'ebbtide backfill start'."
            ),
        ),
    ],
    ids=["no reason", "a folder", "by arrival"],
)
def test_reading_again_is_refused_where_a_record_would_apply_again_or_without_a_reason(make, fields, reason, said):
    pipeline = make()
    pipeline.spec = plain(**{"order": {"sequence": ["n"]}, **fields})
    with pytest.raises((BackfillError, ConfigError)) as raised:
        pipeline.act("backfill.into", begin="earliest", reason=reason)
    assert str(raised.value) == said
    assert not pipeline.home.exists()
