"""Object stores: S3, Google Cloud Storage and Azure, through Rust's object_store.

| module | holds |
|---|---|
| `bucket` | a bucket's calls, and the settings that they come with |
| `faults` | which failures pass by themselves, how long a call is tried again, what is said of it |
| `arrow` | a bucket as a file system of Arrow's |

Endpoint, region and credentials come from the environment (docs/object-stores.md), never from a location.
"""
