"""A gateway as a process: prints its URL, serves until it is told to end. An argument: its idle timeout in seconds."""

import sys

from statements.sql_support import MemorySession

from ebbtide.sql import GatewayServer, Limits


def say(line):
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    server = GatewayServer(
        lambda settings, client: MemorySession(settings), limits=Limits(idle_timeout_s=float(sys.argv[1])), say=say
    )
    say(server.url)
    server.run()
    say("ended")
