"""The rules: pure functions over verified values, from the standard library alone."""
