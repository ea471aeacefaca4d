"""Sources and decoders: from stored or streamed records to the changelog, bad records set apart."""
