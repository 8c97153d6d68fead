"""The `subgrant` command. What is served and stored is the service's business; here it is started and spoken to."""

from app.cli.program import main

__all__ = ["main"]
