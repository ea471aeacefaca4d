"""The tables of a pipeline: its state, and the sink, changelog and quarantine beside it. `table` has their contract."""
