"""Mutation testing: each small fault that is put into the rules should make some test fail."""
