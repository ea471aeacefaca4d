"""The interactive client: statements are typed or read from scripts, results are shown."""
