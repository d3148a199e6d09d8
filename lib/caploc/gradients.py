"""Gradients of a capability's scores with respect to every head's gate: what no mask is needed to know."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from caploc.capabilities.prompts import Capability, Metric, PromptSet
from caploc.encoding import Batch, EncodedPrompts
from caploc.errors import CaplocError
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
            (_logprob(logits, batch) * is_answer[batch.row]).sum().div(n).backward(inputs=[gates, *leaves])
        # keys and values of the first layer depend on no gate
        reached = [(s, leaf.grad) for s, leaf in zip(states, leaves, strict=True) if s.requires_grad]
        if reached:
            ends, gradients = [s for s, _ in reached], [gradient for _, gradient in reached]
            torch.autograd.backward(ends, gradients, inputs=[gates])
    return gates.grad[0].cpu().double().numpy() if gates.grad is not None else np.zeros(len(scorer.grid))


def margin_gradients(scorer: Scorer, prompts: PromptSet, *, gate: float = 1.0) -> np.ndarray:
    """Return d(margin) / d(gate) of every prompt and head, where all gates have one value.

    One forward and one backward pass over the prompts, in micro-batches, every sequence with gates of
    its own; choices take one forward more, to know the best rival. The parameters stay frozen.

    Parameters
    ----------
    scorer : Scorer
        Of the model.
    prompts : PromptSet
        The prompts; a control's count by the log-probability of their answers, a token.
    gate : float
        The value of all gates where the gradient is taken: 1 is the intact model.

    Returns
    -------
    ndarray of float64, [n_prompts, n_heads]
        In nats; :class:`caploc.scoring.Scores` says what a margin is.

    Raises
    ------
    CaplocError
        If one prompt alone does not fit into memory.
    """
    # what a prefix's gates do to each prompt could not be told apart
    encoded = replace(scorer.encode(prompts), prefix=(), _batches={})
    return scorer.forwards.within_memory(lambda: _margin_gradients(scorer, encoded, gate))


def gradients_table(
    scorer: Scorer, capabilities: Mapping[str, Capability], gates: Sequence[float]
) -> pd.DataFrame:
    """Return the mean of the margins' gradients at some values of the gates, on the ``measure`` prompts.

    Returns
    -------
    DataFrame
        A row a capability and prompt: ``capability, prompt_id, gradient``, the last a list over all heads;
        no row if no value of the gates is given.

    Raises
    ------
    CaplocError
        If a gradient is not finite.
    """
    parts = [pd.DataFrame({"capability": [], "prompt_id": [], "gradient": []}, dtype=object)]
    for name, capability in capabilities.items():
        if gates:
            prompts = capability.splits["measure"]
            gradient = np.mean([margin_gradients(scorer, prompts, gate=gate) for gate in gates], axis=0)
            if not np.isfinite(gradient).all():
                raise CaplocError(
                    f"the gradients of {name} are not finite; try dtype: float32 in params.yaml, or fewer "
                    "gradients.gates"
                )
            ids = [prompt.id for prompt in prompts.prompts]
            parts.append(pd.DataFrame({"capability": name, "prompt_id": ids, "gradient": list(gradient)}))
    return pd.concat(parts, ignore_index=True)


@torch.inference_mode(mode=False)
@torch.enable_grad()
def _margin_gradients(scorer: Scorer, encoded: EncodedPrompts, gate: float) -> np.ndarray:
    forwards, device, n_heads = scorer.forwards, scorer.model.device, len(scorer.grid)
    batches = encoded.batches(max(1, forwards.batch_tokens // _ACTIVATIONS), device)

    def gated_logits(batch: Batch, gates: Tensor) -> Tensor:
        with knockout(scorer.model, gates):
            logits = forwards.logits(batch)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    weight = torch.tensor(encoded.is_answer, dtype=torch.float64)  # of each row in its prompt's margin
    if encoded.metric is Metric.CHOICE:
        uniform = torch.full((1, n_heads), gate)
        with torch.no_grad():
            row_logprob = torch.zeros(len(encoded.rows), dtype=torch.float64)
            for batch in batches:
                token_logprob = _logprob(gated_logits(batch, uniform), batch)
                row_logprob.index_add_(0, batch.row.cpu(), token_logprob.cpu().double())
        weight[_best_rivals(encoded, row_logprob.numpy())] = -1
    elif encoded.metric is Metric.LOGPROB:
        weight[encoded.is_answer] /= torch.tensor(encoded.answer_tokens)
    gradient = np.zeros((len(encoded.answer_tokens), n_heads))
    for batch in batches:
        gates = torch.full((len(batch.input_ids), n_heads), gate, device=device, requires_grad=True)
        logits = gated_logits(batch, gates)
        if encoded.metric is Metric.EXACT:
            own = logits.gather(1, batch.token[:, None])[:, 0]
            lead = own - logits.scatter(1, batch.token[:, None], -torch.inf).amax(1)
            rows, of_row = batch.row.unique(return_inverse=True)
            values = torch.zeros_like(rows, dtype=lead.dtype).scatter_reduce(
                0, of_row, lead, "amin", include_self=False
            )
        else:
            rows, values = batch.row, _logprob(logits, batch)
        (values * weight.to(values)[rows]).sum().backward(inputs=[gates])
        prompt = np.zeros(len(batch.input_ids), dtype=int)
        prompt[batch.sequence.cpu()] = encoded.prompt_of_row[batch.row.cpu()]
        if gates.grad is not None:
            np.add.at(gradient, prompt, gates.grad.cpu().double().numpy())
    return gradient


def _logprob(logits: Tensor, batch: Batch) -> Tensor:
    return logits.log_softmax(-1).gather(1, batch.token[:, None])[:, 0]


def _best_rivals(encoded: EncodedPrompts, row_logprob: np.ndarray) -> list[int]:
    """Return the row of each prompt's most probable wrong choice."""
    best: dict[int, int] = {}
    for row in np.flatnonzero(~encoded.is_answer).tolist():
        prompt = int(encoded.prompt_of_row[row])
        if prompt not in best or row_logprob[row] > row_logprob[best[prompt]]:
            best[prompt] = row
    return list(best.values())
