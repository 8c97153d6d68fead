"""`subgrant serve` with a prover that believes everything: what is refused still, the gateway finds out by itself.

Nothing of this is a setting. Before the server starts, the proof of narrowing is replaced by one that proves
whatever it is asked, and making a grant compares no child with its parent any more.
"""

from app.cli import main
from app.core import attenuation, narrowing


def _believed(*_: object, **__: object) -> None:
    """Nothing is refused."""


def _compared(*_: object, **__: object) -> tuple[()]:
    """Nothing is wider."""
    return ()


if __name__ == "__main__":
    for module, name, fault in (
        (narrowing, "_proven", _believed),
        (attenuation, "_more_than_left", _believed),
        (attenuation, "widenings", _compared),
    ):
        assert hasattr(module, name), "there is nothing to break any more"
        setattr(module, name, fault)
    main()
