"""A loaded model put to the test: it is a causal decoder, and its heads are where we think they are."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from caploc.errors import CaplocError
from caploc.models.attention import AttentionLayer, recorded_heads


@torch.inference_mode()
def try_heads(model: Any, layers: Sequence[AttentionLayer]) -> None:
    """Run a few tokens to see that knockouts will do what they say.

    Raises
    ------
    CaplocError
        If a later token changes an earlier logit, a projection is not called with its heads side by side,
        or no knocked-out head changes the logits.
    """
    vocabulary = model.get_output_embeddings().weight.shape[0]
    tokens = torch.arange(1, 9, device=model.device)[None] % vocabulary
    with recorded_heads(layers) as outputs:
        intact = _logits(model, tokens)
    if [output.shape[-1] for output in outputs] != [layer.n_heads * layer.head_width for layer in layers]:
        raise _broken(model, "its attention output projections are not called once a forward, layer by layer")
    other = tokens.clone()
    other[:, -1] = 0
    if not torch.allclose(
        _logits(model, other)[:, :-1], intact[:, :-1], atol=1e-2, rtol=1e-2, equal_nan=True
    ):
        raise _broken(model, "a later token changes an earlier one's logits, so it is no causal decoder")
    heads = ((layer, head) for layer in layers for head in range(layer.n_heads))
    if all(torch.equal(_logits_without(model, tokens, *head), intact) for head in heads):
        raise _broken(
            model, "knocking out a head changes nothing: is it compiled, or are its heads all zero?"
        )


def _logits(model: Any, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens, use_cache=False).logits


def _logits_without(model: Any, tokens: Tensor, layer: AttentionLayer, head: int) -> Tensor:
    def drop(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        outputs = args[0].clone()
        outputs[..., layer.columns(head)] = 0
        return (outputs, *args[1:])

    with layer.projection.register_forward_pre_hook(drop):
        return _logits(model, tokens)


def _broken(model: Any, what: str) -> CaplocError:
    return CaplocError(f'heads cannot be knocked out of this "{model.config.model_type}": {what}')
