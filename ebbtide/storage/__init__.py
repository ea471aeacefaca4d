"""Files on local disks and in object stores (S3, Google Cloud Storage, Azure).

| module | holds |
|---|---|
| `paths` | what is done with a location, wherever it is |
| `columnar` | Parquet and Arrow files |
| `disk` | what reaches a local disk, and how its failures are named |
| `bucket` | the calls to a bucket, through Rust's object_store, and their settings |
| `faults` | which failures are passing, and how long a call is repeated |
| `arrow` | a bucket as a file system of Arrow |

Endpoint, region and credentials come from the environment (docs/how-to/object-stores.md), never from a location.
"""
