"""A model's forwards: a prefix read once and gone on from, and only the logits that are asked for."""

import copy
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, TypeVar

import torch
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from caploc.encoding import Batch, Tokens
from caploc.errors import CaplocError

T = TypeVar("T")


class Forwards:
    """The forwards of one transformers causal language model.

    Parameters
    ----------
    model
        In evaluation mode.
    batch_tokens : int
        Tokens a forward may hold, padding included; halved whenever memory runs out.
    """

    def __init__(self, model: Any, batch_tokens: int) -> None:
        self.model = model
        self.batch_tokens = batch_tokens
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"
        self._takes_positions = "position_ids" in names

    @property
    def context(self) -> int | None:
        """The most tokens that the model reads, where its config says so."""
        config = self.model.config.get_text_config(decoder=True)
        stated = (getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len"))
        return next(filter(None, stated), None)

    @cached_property
    def _cache_layers(self) -> set[type]:
        with torch.inference_mode():
            cache = self.read((0,))
        # in early releases of transformers 5, hybrids have a cache of one piece
        return {type(layer) for layer in getattr(cache, "layers", [cache])}

    @property
    def goes_on(self) -> bool:
        """Whether many tokens can follow a cached prefix at once; recurrent layers allow one at a time."""
        return self._cache_layers <= {DynamicLayer, DynamicSlidingWindowLayer}

    @property
    def keeps_all(self) -> bool:
        """Whether the cache holds every token, so that padding pushes none out of it."""
        return self._cache_layers == {DynamicLayer}

    def read(self, prefix: Tokens, rows: int = 1) -> Any:
        """Read a prefix in some rows, and return its cache; None if there is no prefix."""
        if not prefix:
            return None
        tokens = torch.tensor([prefix] * rows, device=self.model.device)
        with self._wanted_only(*torch.zeros(2, 1, dtype=torch.long, device=tokens.device)):
            return self.model(input_ids=tokens, use_cache=True)[self._cache_name]

    def logits(self, batch: Batch, prefix: Any = None) -> Tensor:
        """Return the wanted logits, [N, vocabulary], after a prefix's cache.

        Each row of the cache precedes equally many rows of the batch, one after the other.
        """
        return self._run(batch, prefix, use_cache=prefix is not None).logits[0]

    def logits_and_cache(self, batch: Batch, prefix: Any = None) -> tuple[Tensor, Any]:
        """Return the wanted logits, [N, vocabulary], and the cache of all that was read, padding included."""
        out = self._run(batch, prefix, use_cache=True)
        return out.logits[0], out[self._cache_name]

    def _run(self, batch: Batch, prefix: Any, *, use_cache: bool) -> Any:
        past = {} if prefix is None else {self._cache_name: _repeat(prefix, len(batch.input_ids))}
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, **past}
        with self._wanted_only(batch.sequence, batch.position):
            return self.model(**inputs, use_cache=use_cache)

    def step(self, tokens: Tensor, attention_mask: Tensor, cache: Any) -> Tensor:
        """Read one more token a row, [B], and return the logits that follow, [B, vocabulary].

        The attention mask, [B, T], has its padding on the left.
        """
        settings: dict[str, Any] = {self._cache_name: cache}
        if self._takes_positions:
            settings["position_ids"] = attention_mask.sum(1, keepdim=True) - 1
        return self.model(
            input_ids=tokens[:, None], attention_mask=attention_mask, use_cache=True, **settings
        ).logits[:, -1]

    def within_memory(self, run: Callable[[], T]) -> T:
        """Return what `run` does, which heeds `batch_tokens`; halve that and run again if memory runs out.

        Raises
        ------
        CaplocError
            If one token a forward is still too many.
        """
        while True:
            try:
                return run()
            except (RuntimeError, MemoryError) as error:
                self._halve(error)

    def _halve(self, error: Exception) -> None:
        if not isinstance(error, MemoryError) and not should_reduce_batch_size(error):
            raise error
        if self.batch_tokens <= 1:
            raise CaplocError(
                "one prompt alone does not fit into memory; choose a smaller model, a narrower dtype "
                "or shorter prompts"
            ) from error
        self.batch_tokens //= 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _wanted_only(self, sequence: Tensor, position: Tensor) -> AbstractContextManager[Any]:
        # narrowing the unembedding's input leaves alone what an architecture does to its logits afterwards
        def narrow(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            hidden = args[0]  # [B, T, hidden]
            return (hidden[sequence.to(hidden.device), position.to(hidden.device)][None], *args[1:])

        return self.model.get_output_embeddings().register_forward_pre_hook(narrow)


def _repeat(cache: Any, rows: int) -> Any:
    """Return a copy of a cache in which every row stands as often as makes `rows`."""
    times = rows // len(cache.layers[0].keys)
    return map_cache(cache, lambda states: states[:, None].expand(-1, times, *states.shape[1:]).flatten(0, 1))


def map_cache(cache: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a copy of a cache whose keys and values, [rows, heads, T, width], are changed."""
    changed = copy.copy(cache)
    changed.layers = []
    for layer in cache.layers:
        one = copy.copy(layer)
        one.keys, one.values = change(layer.keys), change(layer.values)
        changed.layers.append(one)
    return changed
