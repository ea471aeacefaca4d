"""Holds a lease until killed: `elsewhere.py PATH TTL_S`. Run in namespaces of its own it is another host, or a container of this one."""

import sys
import time

from ebbtide.ledger import Lease

if __name__ == "__main__":
    path, ttl_s = sys.argv[1:]
    with Lease(path, "p", float(ttl_s)):
        sys.stdout.write("held\n")
        sys.stdout.flush()
        time.sleep(600)
