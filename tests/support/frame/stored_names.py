"""Names and numbers that stand in files: stated again, so that none changes unseen for roots that are there already."""

FOOTER = "ebbtideFooter"
CHECKSUM = "ebbtideChecksum"
"""Of an action in a log."""
DOMAIN = "ebbtide"
FILE = "file"
BASE = {DOMAIN: "base"}
"""Tags of a file of the state."""
RESERVED = ("_sequence", "_changed_by")
"""Columns of a sink beside the user's."""
OP_DELETE, OP_SNAPSHOT, OP_UPSERT = 1, 2, 3
"""What an entry by sequence is of."""
HASH, POSITION = "#hash", "#position"
KEYS = ".keys.arrow"
"""Columns of a local copy, and the end of its name."""
ASKED = "asked.json"
ERASED = "The log was deleted by an erasure.\n"
FOLDER = JOBS = ".sql/jobs"
JOBS_OF_STORES = ".local/state/ebbtide"
"""Files and folders beside the tables."""
