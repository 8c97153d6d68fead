"""Subgrant: a delegation-grant authorization service."""
