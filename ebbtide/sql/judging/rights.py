"""What the statements of a session may do beside reading tables by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rights:
    """The rights of a session's statements.

    Args:
        writes: They may create, change and delete what no pipeline owns.
        folders: They may name files and folders of the host or of a store.
        programs: They may call programs, Java classes and methods.
        stops_own_jobs_only: They stop no job of another client.
    """

    writes: bool = True
    folders: bool = True
    programs: bool = True
    stops_own_jobs_only: bool = False

    @classmethod
    def of_gateway(cls, *, writes: bool, folders: bool = False, stops_own_jobs_only: bool = False) -> Rights:
        """Return the rights of a gateway's client: its programs are never called.

        Args:
            writes: False: what Spark executes for it only reads.
            folders: See the class.
            stops_own_jobs_only: See the class.
        """
        return cls(writes, folders, programs=False, stops_own_jobs_only=stops_own_jobs_only)
