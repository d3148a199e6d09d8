"""A tiny model of every architecture, built from its config, with weights large enough that every head matters."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

VOCABULARY = 128
CONTEXT = 256

# grouped-query attention where the architecture has it, and heads wider than hidden / heads
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
_WIDE = {"head_dim": 32}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_GPT2 = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT}
_SLIDING = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 24,
}
_FALCON = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}

# name -> (model_type, settings)
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _SIZES | {"num_attention_heads": 8}),
    "mistral": ("mistral", _SIZES | _WIDE | {"sliding_window": 16}),
    "mixtral": ("mixtral", _SIZES | {"num_local_experts": 4}),
    "qwen2": ("qwen2", _SIZES),
    "qwen2_moe": ("qwen2_moe", _SIZES | _MOE | {"shared_expert_intermediate_size": 48}),
    "qwen3": ("qwen3", _SIZES | _WIDE),
    "qwen3_moe": ("qwen3_moe", _SIZES | _WIDE | _MOE),
    "gemma": ("gemma", _SIZES | _WIDE),
    "gemma2": ("gemma2", _SIZES | _WIDE | _SLIDING),
    "gemma3": ("gemma3_text", _SIZES | _WIDE | _SLIDING),
    "phi": ("phi", _SIZES),
    "phi3": ("phi3", _SIZES),
    "olmo2": ("olmo2", _SIZES),
    "starcoder2": ("starcoder2", _SIZES | {"use_bias": True}),
    "granite": ("granite", _SIZES | {"attention_multiplier": 0.25}),
    "granitemoe": ("granitemoe", _SIZES | {"num_local_experts": 4, "attention_multiplier": 0.25}),
    "stablelm": ("stablelm", _SIZES),
    "cohere": ("cohere", _SIZES),
    "cohere2": ("cohere2", _SIZES | _WIDE | _SLIDING),
    "glm4": ("glm4", _SIZES | _WIDE),
    "smollm3": ("smollm3", _SIZES),
    "gpt_oss": ("gpt_oss", _SIZES | _WIDE | _SLIDING | {"num_local_experts": 4}),
    "deepseek_v3": (
        "deepseek_v3",
        _SIZES
        | _LATENT
        | {
            "num_key_value_heads": 4,
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
        },
    ),
    "gpt2": ("gpt2", _GPT2),
    "gpt_bigcode": ("gpt_bigcode", _GPT2),
    "gpt_neo": (
        "gpt_neo",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 64,
            "num_layers": 4,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 2]],
            "window_size": 16,
            "max_position_embeddings": CONTEXT,
        },
    ),
    "gpt_neox": ("gpt_neox", _SIZES),
    "gptj": ("gptj", _GPT2 | {"rotary_dim": 8}),
    "opt": ("opt", _SIZES | {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "bloom": ("bloom", {"vocab_size": VOCABULARY, "hidden_size": 64, "n_layer": 3, "n_head": 4}),
    "falcon_multi_query": ("falcon", _FALCON | {"multi_query": True, "parallel_attn": True}),
    "falcon_grouped": ("falcon", _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon_alibi": (
        "falcon",
        _FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
    "mpt": (
        "mpt",
        {"vocab_size": VOCABULARY, "d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": CONTEXT},
    ),
    "jamba": (
        "jamba",
        _SIZES
        | {
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "use_mamba_kernels": False,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
        },
    ),
    "lfm2": (
        "lfm2",
        _SIZES
        | {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    ),
    "qwen3_next": (
        "qwen3_next",
        _SIZES
        | _WIDE
        | _MOE
        | {
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 48,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
    ),
}

HYBRIDS = {"jamba": (1, 3), "lfm2": (1, 3), "qwen3_next": (3,)}
"""The numbers of the layers that have attention."""


def build(name: str, seed: int = 0, **settings: Any) -> Any:
    """Build a tiny model, in evaluation mode, parameters frozen."""
    model_type, sizes = ARCHITECTURES[name]
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model_type, **(sizes | settings))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.eval().requires_grad_(requires_grad=False)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            parameter.normal_(std=0.2)
        else:
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model
