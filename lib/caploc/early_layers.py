"""What a model's first layers compute, kept for all masks that spare them.

Up to the first layer with a knocked-out head, the hidden states are those of the intact model. They are
recorded once a batch and recalled, so that a forward begins where a mask does.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from caploc.encoding import Batch, Tokens
from caploc.forwards import Forwards
from caploc.models.attention import decoder_layers, known_architectures

_KEPT_BYTES = 2**31  # more is left to the batches


class EarlyLayers:
    """The outputs of a model's layers on some batches, intact.

    Parameters
    ----------
    forwards : Forwards
        Of the model.
    """

    def __init__(self, forwards: Forwards) -> None:
        self.forwards = forwards
        self.layers = decoder_layers(forwards.model)
        # where the architecture was found by shape, late layers may want more of early ones than their output
        self._is_known = forwards.model.config.model_type in known_architectures()
        self._batches: list[Batch] = []
        self._outputs: list[list[Any]] = []  # of each batch, what each layer but the last returns

    def recorded(self, batches: list[Batch]) -> bool:
        """Whether it is these batches whose outputs are kept."""
        return self._batches is batches

    @torch.inference_mode()
    def record(self, batches: list[Batch], prefix: Tokens) -> None:
        """Keep the layers' outputs on some batches that follow a prefix, and on no others."""
        self.forget()
        self._batches = batches
        cache = self.forwards.read(prefix)
        kept: list[list[Any]] = []
        for batch in batches if self._is_known else []:
            outputs: list[Any] = []
            with ExitStack() as hooks:
                for layer in self.layers[:-1]:
                    spy = layer.register_forward_hook(
                        lambda _m, _a, output, into=outputs: into.append(output)
                    )
                    hooks.enter_context(spy)
                self.forwards.logits(batch, cache)
            kept.append(outputs)
            if sum(_hidden(output).nbytes for output in outputs) * len(batches) > _KEPT_BYTES:
                return
        self._outputs = kept

    def forget(self) -> None:
        """Keep nothing."""
        self._batches, self._outputs = [], []

    @contextmanager
    def skipped(self, number: int, first: int, times: int) -> Iterator[None]:
        """Let forwards on a recorded batch, repeated for as many masks, begin at the layer `first`."""
        first = min(first, len(self.layers) - 1)
        if first == 0 or not self._outputs:
            yield
            return
        originals = list(self.layers[:first])
        recalled = _repeat(self._outputs[number][first - 1], times)
        try:
            for i, layer in enumerate(originals):
                self.layers[i] = _Recalled(layer, recalled)
            yield
        finally:
            for i, layer in enumerate(originals):
                self.layers[i] = layer


class _Recalled(nn.Module):
    """Stands in for a layer whose output is known, and is otherwise like it."""

    def __init__(self, layer: nn.Module, output: Any) -> None:
        super().__init__()
        self.__dict__["layer"] = layer  # no submodule: the model's modules stay what they are
        self.output = output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layer"], name)

    def forward(self, *_args: Any, **_settings: Any) -> Any:
        return self.output


def _hidden(output: Any) -> Tensor:
    """Return the hidden states, [B, T, hidden], in what a layer returns."""
    return output[0] if isinstance(output, tuple) else output


def _repeat(output: Any, times: int) -> Any:
    repeated = _hidden(output).repeat(times, 1, 1)
    return (repeated, *output[1:]) if isinstance(output, tuple) else repeated
