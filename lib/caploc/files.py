"""The files that stages hand each other: where they lie, and how to write them byte for byte alike."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from caploc.errors import CaplocError

REQUEST = Path("artifacts/request.json")
CAPABILITIES = Path("artifacts/capabilities.json")
MODEL = Path("artifacts/model.json")
BASELINE = Path("artifacts/baseline.parquet")
GRADIENTS = Path("artifacts/gradients.parquet")
DESIGN = Path("artifacts/design.parquet")
MEASUREMENTS = Path("artifacts/measurements")
REFINEMENT = Path("artifacts/refinement")
INTERACTIONS = Path("artifacts/interactions.parquet")
EFFECTS = Path("artifacts/effects.parquet")
HEADS = Path("artifacts/heads.json")
VALIDATION = Path("artifacts/validation.parquet")
METRICS = Path("reports/metrics.json")
PLOTS = Path("reports/plots")
FIGURES = Path("reports/figures")
REPORT = Path("reports/report.html")


def read_json(path: Path) -> Any:
    """Read a JSON file that a stage wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CaplocError(f"{path} cannot be read: {error}; `dvc repro` writes it anew") from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, keys in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_table(path: Path) -> pd.DataFrame:
    """Read a Parquet file that a stage wrote."""
    try:
        return pd.read_parquet(path)
    except (OSError, pa.ArrowException) as error:
        raise CaplocError(f"{path} cannot be read: {error}; `dvc repro` writes it anew") from error


def write_table(path: Path, table: pd.DataFrame, provenance: dict[str, Any] | None = None) -> None:
    """Write a Parquet file, with its provenance as JSON under the metadata key ``caploc``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    metadata = {
        **(arrow.schema.metadata or {}),
        b"caploc": json.dumps(provenance or {}, sort_keys=True).encode(),
    }
    pq.write_table(arrow.replace_schema_metadata(metadata), path)
