"""The gradient of a capability's score with respect to every head's gate."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caploc.capabilities.prompts import PromptSet
from caploc.encoding import EncodedPrompts
from caploc.forwards import map_cache
from caploc.heads import HeadLike
from caploc.knockouts import head_gates, knockout
from caploc.scoring import Scorer

_ACTIVATIONS = 4  # a forward to be differentiated keeps about so many times the memory of one that is not


def gate_gradients(scorer: Scorer, prompts: PromptSet, heads: Iterable[HeadLike] = ()) -> np.ndarray:
    """Return d(mean log-probability of the answers) / d(gate), for every head.

    To first order, knocking a head out of the intact model changes the mean log-probability by minus
    this. One forward and one backward pass over the prompts, in micro-batches; the parameters stay
    frozen. The cached prefix is differentiated once, after all batches.

    Parameters
    ----------
    scorer : Scorer
        Of the model.
    prompts : PromptSet
        The prompts whose answers count; wrong choices do not.
    heads : iterable of int, str or (int, int)
        Heads knocked out where the gradient is taken; none by default.

    Returns
    -------
    ndarray of float64, [n_heads]
        In nats a prompt.

    Raises
    ------
    CaplocError
        If a head does not exist, or one prompt alone does not fit into memory.
    """
    encoded = scorer.encode(prompts)
    knocked_out = scorer.grid.indices(heads)
    return scorer.forwards.within_memory(lambda: _gradients(scorer, encoded, knocked_out))


@torch.inference_mode(mode=False)
@torch.enable_grad()
def _gradients(scorer: Scorer, encoded: EncodedPrompts, heads: list[int]) -> np.ndarray:
    forwards, device = scorer.forwards, scorer.model.device
    gates = head_gates(scorer.grid, heads).to(device).requires_grad_()
    is_answer = torch.tensor(encoded.is_answer, device=device)
    n = int(is_answer.sum())
    with knockout(scorer.model, gates):
        prefix: Any = None
        states: list[Tensor] = []
        leaves: list[Tensor] = []
        if encoded.prefix:

            def cut(read: Tensor) -> Tensor:
                states.append(read)
                leaves.append(read.detach().requires_grad_())
                return leaves[-1]

            prefix = map_cache(forwards.read(encoded.prefix), cut)
        for batch in encoded.batches(max(1, forwards.batch_tokens // _ACTIVATIONS), device):
            logits = forwards.logits(batch, prefix)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logprob = logits.log_softmax(-1).gather(1, batch.token[:, None])[:, 0]
            (logprob * is_answer[batch.row]).sum().div(n).backward(inputs=[gates, *leaves])
        # keys and values of the first layer depend on no gate
        reached = [(s, leaf.grad) for s, leaf in zip(states, leaves, strict=True) if s.requires_grad]
        if reached:
            ends, gradients = [s for s, _ in reached], [gradient for _, gradient in reached]
            torch.autograd.backward(ends, gradients, inputs=[gates])
    return gates.grad[0].cpu().double().numpy() if gates.grad is not None else np.zeros(len(scorer.grid))
