"""The upsert materializer of FLIP-544: the ordered multiset, record by record and in columns."""
