"""A package: what its tests share, `dagster dev` above all, ends with the last of them and not with the process."""
