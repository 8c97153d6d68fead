"""The API's description, the same bytes for the same code wherever it is made."""

import json

from app.cli.composition import composition
from app.settings import Settings


def openapi() -> str:
    """OpenAPI 3.1, sorted. Knows no setting: nothing of an environment or an installation is in it."""
    document = composition().create_app(Settings.model_construct()).openapi()
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
