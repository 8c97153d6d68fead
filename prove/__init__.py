"""`make prove`: the prover of narrowing against a solver that knows nothing of it. See README.md."""
