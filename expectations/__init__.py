"""Great Expectations over Ebbtide's tables: the rules are in `ebbtide.rules`, here are their shells."""
