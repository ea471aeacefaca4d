"""The pure model: no Spark, no files, no clock but the one passed in."""
