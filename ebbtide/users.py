"""Who runs this process, also where its user id has no name: in a container with any id."""

from __future__ import annotations

import getpass
import os
import pwd


def user_name() -> str:
    """Return the user's name, of one without a name `uid-` and the id."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return f"uid-{os.getuid()}"


def has_passwd_entry() -> bool:
    """Return whether the user id has an entry, as the JVM needs it: unlike Python it takes no variable in its place."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True
