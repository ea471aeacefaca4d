"""From a sample of real records to a spec: what they look like, their columns and types, their key and order."""
