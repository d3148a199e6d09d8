"""caploc finds the few attention heads that a language model's capability needs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caploc.heads import HeadGrid
    from caploc.knockouts import knockout
    from caploc.models.loading import load_model

__all__ = ["HeadGrid", "knockout", "load_model"]

_HOMES = {
    "HeadGrid": "caploc.heads",
    "knockout": "caploc.knockouts",
    "load_model": "caploc.models.loading",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that light stages never load torch."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'caploc' has no attribute {name!r}")
