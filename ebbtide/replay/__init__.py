"""Plays cases in the format of the golden ones: a script in, each operation with its result out."""
