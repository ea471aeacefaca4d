"""State in RocksDB, for state larger than memory. Needs the extra `rocksdb`."""
