"""Capabilities as a file: what to build, and the fingerprints that the result must have."""

from collections.abc import Mapping, Sequence
from typing import Any

from caploc.capabilities.prompts import Capability
from caploc.capabilities.registry import build_all
from caploc.errors import CaplocError


def describe(names: Sequence[str], *, seed: int, measure: int, validate: int) -> dict[str, Any]:
    """Return all that :func:`rebuild` needs to build some capabilities, and each split's fingerprint.

    Raises
    ------
    CaplocError
        If a capability is unknown or has fewer prompts than asked for, or all are controls.
    """
    counts = {"measure": measure, "validate": validate}
    capabilities = build_all(names, seed=seed, **counts)
    if all(capability.is_control for capability in capabilities.values()):
        raise CaplocError(
            f"params.yaml: capabilities holds only controls ({', '.join(names)}): add one to localize"
        )
    return {"seed": seed, "prompts": counts, "fingerprints": _fingerprints(capabilities)}


def rebuild(description: Mapping[str, Any]) -> dict[str, Capability]:
    """Build the capabilities that a description names.

    Raises
    ------
    CaplocError
        If their content is not what was described: code or data changed since.
    """
    expected = description["fingerprints"]
    capabilities = build_all(list(expected), seed=description["seed"], **description["prompts"])
    found = _fingerprints(capabilities)
    changed = [name for name in expected if found[name] != expected[name]]
    if changed:
        raise CaplocError(
            f"the prompts of {', '.join(changed)} changed since the check stage; run `dvc repro` again"
        )
    return capabilities


def _fingerprints(capabilities: Mapping[str, Capability]) -> dict[str, dict[str, str]]:
    return {
        name: {split: prompts.fingerprint for split, prompts in capability.splits.items()}
        for name, capability in capabilities.items()
    }
