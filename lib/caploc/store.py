"""The content-addressed store of scores: nothing measured once is ever measured again.

An entry's key is all that its scores depend on: the scoring version, the model's weights and dtype, the
prompts and metric, the kind of ablation, and the heads knocked out. Entries appear whole or not at all,
so a run may be killed at any moment and two runs may write at once.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from caploc.errors import CaplocError
from caploc.scoring import SCORING_VERSION, Scores

_STORE_VERSION = 1


class MeasurementStore:
    """Scores on disk, for one model and dtype.

    Parameters
    ----------
    root : Path
        The store's folder; see :func:`default_root`.
    model : dict
        What the download stage states of the model: ``sha256`` and ``dtype`` count.
    """

    def __init__(self, root: Path, model: dict[str, Any]) -> None:
        self.context = {
            "store_version": _STORE_VERSION,
            "scoring_version": SCORING_VERSION,
            "model_sha256": model["sha256"],
            "dtype": model["dtype"],
            "ablation": "zero",
        }
        self.folder = root / _digest(self.context)

    def get(self, fingerprint: str, heads: Iterable[int]) -> Scores | None:
        """Return the scores of a prompt set with some heads (flat indices) knocked out, if measured."""
        path = self._path(fingerprint, heads)
        try:
            entry = json.loads(path.read_text())
            logprob, correct, margin = (
                np.array(entry[key], dtype=float) for key in ("logprob", "correct", "margin")
            )
            return Scores(logprob, correct, margin, np.array(entry["valid"], dtype=bool))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CaplocError(
                f"the stored measurement {path} is damaged; delete it to measure it again"
            ) from error

    def put(self, fingerprint: str, heads: Iterable[int], scores: Scores) -> None:
        """Keep the scores of a prompt set with some heads knocked out."""
        entry = {
            "logprob": [None if np.isnan(x) else float(x) for x in scores.logprob],
            "correct": [None if np.isnan(x) else int(x) for x in scores.correct],
            "margin": [None if np.isnan(x) else float(x) for x in scores.margin],
            "valid": scores.valid.tolist(),
        }
        self._write(self._path(fingerprint, heads), json.dumps(entry))

    def _path(self, fingerprint: str, heads: Iterable[int]) -> Path:
        return self.folder / fingerprint / f"{_digest(sorted(heads))}.json"

    def _write(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as part:
                part.write(text)
            Path(part.name).replace(path)
        except OSError as error:
            raise CaplocError(
                f"the measurement store {self.folder} cannot be written ({error.strerror}); make room or "
                "mend its permissions, then run again: what was measured so far is kept"
            ) from error


def default_root() -> Path:
    """Return the store's folder: one for a repository, shared by its experiments' temporary checkouts."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".cache" / "measurements"


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
