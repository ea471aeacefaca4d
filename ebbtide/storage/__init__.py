"""Files on local disks and in object stores (S3, Google Cloud Storage, Azure).

| module | holds |
|---|---|
| `paths` | reads and writes at a location, local or not |
| `usage` | sizes of folders |
| `columnar` | Parquet and Arrow files |
| `disk` | syncs of local disks, and names of their failures |
| `bucket` | the calls to a bucket, through Rust's object_store, and their settings |
| `faults` | retries of calls to a store |
| `arrow` | a bucket as a file system of Arrow |

Endpoint, region and credentials come from the environment (docs/how-to/object-stores.md), never from a location.
"""
