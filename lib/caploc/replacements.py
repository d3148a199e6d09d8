"""What a knocked-out head writes instead of zero: its mean, or its values on another prompt."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from caploc.models.attention import AttentionLayer, attention_layers, recorded_heads

Inputs = Mapping[str, Tensor]
"""What a tokenizer returns: ``input_ids`` and, where rows are padded, ``attention_mask``; both [B, T]."""


class Replacement(Protocol):
    """Values for the heads of every attention layer."""

    def follow(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Watch the model's forwards, for as long as its heads are replaced."""
        ...

    @property
    def is_one_for_all(self) -> bool:
        """Whether every row gets the same values, so that rows may be batched in any order."""
        ...

    def outputs(self, layer: int, like: Tensor) -> Tensor:
        """Return a layer's replaced outputs, broadcastable to `like`, [B, T, heads * width]."""
        ...


class MeanReplacement:
    """Each head's mean output over all tokens of reference prompts (mean ablation).

    Parameters
    ----------
    model : torch.nn.Module
        A transformers causal language model, intact.
    batches : iterable of mapping
        Reference prompts in tokens; padding is left out of the mean.
    """

    def __init__(self, model: Any, batches: Iterable[Inputs]) -> None:
        layers = attention_layers(model)
        sums: list[Any] = [0.0] * len(layers)
        n = 0
        for inputs in batches:
            outputs, real = _head_outputs(model, layers, inputs)
            n += int(real.sum())
            for i, output in enumerate(outputs):
                sums[i] += output[real.to(output.device)].cpu().double().sum(0)
        if not n:
            raise ValueError("the mean of a head's output needs at least one reference token")
        self.means = [total / n for total in sums]  # [heads * width] of every layer

    @property
    def is_one_for_all(self) -> bool:
        """The mean is everybody's."""
        return True

    def follow(self, model: nn.Module) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Nothing to watch: the mean is the same everywhere."""
        return nullcontext()

    def outputs(self, layer: int, like: Tensor) -> Tensor:
        """Return the mean outputs of a layer's heads, [heads * width]."""
        return self.means[layer].to(like)


class ResampleReplacement:
    """The heads' outputs on other prompts, position by position (resample ablation).

    Row i of a batch takes the values of donor i, or all rows take those of the only donor. Beyond a
    donor's end its last values stay. Positions count from a row's first token that is not padding.

    Parameters
    ----------
    model : torch.nn.Module
        A transformers causal language model, intact.
    donors : mapping
        The donor prompts in tokens.
    """

    def __init__(self, model: Any, donors: Inputs) -> None:
        outputs, real = _head_outputs(model, attention_layers(model), donors)
        lengths = real.sum(1)
        first = real.int().argmax(1)  # donors may be padded on either side
        steps = torch.arange(real.shape[1], device=real.device)
        order = (first[:, None] + steps).clamp(max=(first + lengths - 1)[:, None])  # [R, T]
        self._donated = [o.gather(1, order.to(o.device)[..., None].expand_as(o)) for o in outputs]
        self._positions: Tensor | None = None

    @property
    def is_one_for_all(self) -> bool:
        """Whether there is a single donor."""
        return len(self._donated[0]) == 1

    def follow(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Note the position of every token that the model reads."""
        return model.register_forward_pre_hook(self._note_positions, with_kwargs=True)

    def outputs(self, layer: int, like: Tensor) -> Tensor:
        """Return what the donors' heads wrote, [B or 1, T, heads * width]."""
        donated = self._donated[layer].to(like)  # [R, T', heads * width]
        rows, n_tokens = like.shape[:2]
        if donated.shape[0] not in (1, rows):
            raise ValueError(
                f"{donated.shape[0]} donor prompts met a batch of {rows} rows; give one, or one a row"
            )
        if self._positions is None or self._positions.shape[-1] != n_tokens:
            raise ValueError("resample ablation has to see the call of the whole model, to know positions")
        positions = self._positions.clamp(0, donated.shape[1] - 1).to(like.device)
        donor = torch.arange(donated.shape[0], device=like.device)[:, None]
        return donated[donor, positions]

    def _note_positions(self, _model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tokens = args[0] if args else kwargs["input_ids"]
        mask = kwargs.get("attention_mask")
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        seen = cache.get_seq_length() if cache is not None else 0
        if mask is not None and mask.ndim == 2:
            self._positions = mask.long().cumsum(1)[:, -tokens.shape[1] :] - 1
        else:
            self._positions = torch.arange(seen, seen + tokens.shape[1], device=tokens.device)[None]


def require_one_for_all(replacement: Replacement | None) -> None:
    """Check that a replacement does not depend on the order of the rows, which batching changes.

    Raises
    ------
    ValueError
        If it has several donors.
    """
    if replacement is not None and not replacement.is_one_for_all:
        raise ValueError(
            "scores and answers are batched in an order of their own: give one donor, for all prompts"
        )


@torch.no_grad()
def _head_outputs(model: Any, layers: list[AttentionLayer], inputs: Inputs) -> tuple[list[Tensor], Tensor]:
    """Return every layer's outputs, [B, T, heads * width], and which tokens are real, [B, T]."""
    ids = inputs["input_ids"].to(model.device)
    mask = inputs.get("attention_mask", torch.ones_like(ids)).to(model.device)
    with recorded_heads(layers) as outputs:
        model(input_ids=ids, attention_mask=mask, use_cache=False)
    return outputs, mask.bool()
