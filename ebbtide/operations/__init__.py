"""Operations on a pipeline's tables: maintenance, repair, rewind, migration, backfill, quarantine, adoption, clock, pause."""
