"""params.yaml as one typed, validated object, read by the parser that DVC uses (YAML 1.2)."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, field_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from caploc.errors import CaplocError, did_you_mean

PositiveInt = Annotated[StrictInt, Field(ge=1)]
PromptCount = Annotated[StrictInt, Field(ge=8)]  # fewer allow no honest interval
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


_LEAST_MASKS = 10  # fewer cannot be split into folds that tell anything


class Section(BaseModel):
    """A part of params.yaml: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Prompts(Section):
    """How many prompts a capability has in each split, and when its baseline is too low to localize."""

    measure: PromptCount
    validate_: PromptCount = Field(alias="validate")
    floor: Annotated[Number, Field(ge=0, lt=1)]


class Gradients(Section):
    """Where gradients are taken that tell, before any mask, which heads are likely to matter."""

    gates: tuple[Annotated[Number, Field(gt=0, le=1)], ...]


class Design(Section):
    """Which heads each mask knocks out."""

    scheme: Literal["balanced", "bernoulli", "layer_balanced", "single", "weighted"]
    masks: Annotated[StrictInt, Field(ge=1, le=1_000_000)]
    density: Annotated[Number, Field(gt=0, lt=1)]

    def heads_per_mask(self, n_heads: int) -> int:
        """Return how many of a model's heads a mask knocks out (for bernoulli: on average)."""
        return 1 if self.scheme == "single" else max(1, round(self.density * n_heads))


class Refinement(Section):
    """Masks measured beyond the design's, about the heads that are still in doubt."""

    masks: Annotated[StrictInt, Field(ge=0, le=1_000_000)]
    rounds: PositiveInt


class Recovery(Section):
    """How effects are estimated from masks and scores."""

    estimator: Literal[
        "bayes",
        "lasso",
        "lasso_cv",
        "lasso_bic",
        "adaptive_lasso",
        "prior_ridge",
        "elastic_net",
        "omp",
        "best_subset",
        "stability",
        "ard",
    ]
    score: Literal["logprob", "accuracy", "logit_accuracy", "margin"]
    alpha: Annotated[Number, Field(gt=0, lt=1)]
    alpha_relative: bool
    bootstrap: Annotated[StrictInt, Field(ge=2, le=100_000)]


class Localization(Section):
    """How heads are chosen from the effects of all capabilities."""

    objective: Literal["joint", "contrast", "target"]
    weight: Annotated[Number, Field(ge=0)]


class Validation(Section):
    """What the chosen heads are compared with, and how intervals are made."""

    random_sets: Annotated[StrictInt, Field(ge=1, le=1000)]
    bootstrap: Annotated[StrictInt, Field(ge=100, le=100_000)]


class Runtime(Section):
    """Where and how fast; never what. Changing these reruns nothing."""

    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:[0-9]+)?)$")]
    batch_tokens: PositiveInt
    progress: bool


class Params(Section):
    """The whole experiment, as data; README.md says what each parameter means."""

    model: Annotated[str, Field(min_length=1, max_length=500)]
    dtype: Literal["float32", "bfloat16", "float16"]
    sparsity: PositiveInt
    seed: Annotated[StrictInt, Field(ge=0)]
    capabilities: Annotated[tuple[str, ...], Field(min_length=1)]
    prompts: Prompts
    gradients: Gradients
    design: Design
    refinement: Refinement
    recovery: Recovery
    localization: Localization
    validation: Validation
    runtime: Runtime

    @field_validator("capabilities")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is listed twice; list each capability once")
        return names

    def experiment(self) -> str:
        """Return what decides the results, as YAML: everything but the runtime settings."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"runtime"})
        return yaml.safe_dump(content, sort_keys=False)

    def require_heads(self, n_heads: int) -> None:
        """Check what depends on the model's number of heads.

        Raises
        ------
        CaplocError
            If sparsity exceeds the heads, or the masks are too few for every head to be knocked out.
        """
        if self.sparsity > n_heads:
            raise CaplocError(
                f"params.yaml: sparsity is {self.sparsity}, but {self.model} has only {n_heads} heads; "
                "lower it"
            )
        if self.design.scheme == "weighted" and not self.gradients.gates:
            raise CaplocError(
                "params.yaml: design.scheme weighted takes its weights from gradients; "
                "set gradients.gates to [1.0], or choose another scheme"
            )
        if self.design.scheme == "single" and self.design.masks != n_heads:
            raise CaplocError(
                f"params.yaml: design.scheme single knocks out each of {n_heads} heads once; "
                f"set design.masks to {n_heads}"
            )
        if self.design.scheme == "weighted" and self.design.density > 0.5:
            raise CaplocError(
                "params.yaml: design.scheme weighted knocks out half of the heads at most; "
                "lower design.density"
            )
        size = self.design.heads_per_mask(n_heads)
        if not self.design.density * n_heads >= 1 or size >= n_heads:
            raise CaplocError(
                f"params.yaml: design.density {self.design.density:g} of {n_heads} heads must be at least "
                "one head and not all of them"
            )
        needed = max(-(-n_heads // size), 2 * self.sparsity, _LEAST_MASKS)
        if self.design.masks < needed:
            raise CaplocError(
                f"params.yaml: design.masks is {self.design.masks}, too few to fit: {n_heads} heads at "
                f"{size} a mask need at least {needed} masks to knock every head out once and to fit "
                f"{self.sparsity} of them; raise design.masks or design.density"
            )


def load_params(path: str | Path = "params.yaml") -> Params:
    """Read and validate params.yaml.

    Raises
    ------
    CaplocError
        Naming every key at fault, what is wrong with it, and the remedy.
    """
    try:
        raw = YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, YAMLError, RecursionError) as error:
        raise CaplocError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise CaplocError(f"{path} must be a mapping of parameters, such as `sparsity: 5`")
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        faults = "\n".join(f"  {_explain(fault)}" for fault in error.errors())
        remedy = "`dvc exp run -S` leaves a bad value in it: mend it there"
        raise CaplocError(f"{path} is not valid ({remedy}):\n{faults}") from error


def _explain(fault: Any) -> str:
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key{did_you_mean(str(fault['loc'][-1]), _known_keys(fault['loc'][:-1]))}"
    if fault["type"] == "missing":
        return f"{key}: missing; every parameter must be given"
    return f"{key}: {fault['msg'].removeprefix('Value error, ')} (got {fault['input']!r})"


def _known_keys(section: tuple[int | str, ...]) -> list[str]:
    model: Any = Params
    for name in section:
        model = model.model_fields[str(name)].annotation
    return [field.alias or name for name, field in model.model_fields.items()]
