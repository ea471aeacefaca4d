"""Operations on the quarantine: bad records are replayed or dropped."""
