"""Work of a step in tasks: records are decoded into staged rows, shares of them are decided on, rows of a transform are finished."""
