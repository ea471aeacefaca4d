"""Who runs this process, also where its user id has no name: in a container with any id."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """Return the user's name, of one without a name `uid-` and the id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return f"uid-{os.getuid()}"
