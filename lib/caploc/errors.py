"""The one exception that stages and the command line show as a plain message."""

from difflib import get_close_matches


class CaplocError(Exception):
    """What went wrong and the remedy, in words for the user; shown without a traceback."""


def did_you_mean(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Return ``' (did you mean "x"?)'`` for the closest known word, or an empty string."""
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f' (did you mean "{close[0]}"?)' if close else ""
