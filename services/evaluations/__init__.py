"""The figures of an evaluation, its records as files, and the matrix of R-Zero's Table 4."""
