"""Sources: from stored or streamed bytes to raw records."""
