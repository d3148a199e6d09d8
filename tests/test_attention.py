"""Heads are found by name, else by shape, else refused: never guessed."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from architectures import ARCHITECTURES, build
from caploc.errors import CaplocError
from caploc.models.attention import attention_layers, grid_of, known_architectures, require_heads
from caploc.models.trial import try_heads


def tiny(model_type, **settings):
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(model_type, **(sizes | settings))
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def test_every_architecture_of_the_table_is_in_the_conformance_suite():
    tested = {model_type for model_type, _ in ARCHITECTURES.values()}
    assert set(known_architectures()) - {"gemma3"} == tested


@pytest.mark.parametrize("model_type", ["bert", "roberta", "xlm"])
def test_encoders_are_refused(model_type):
    with pytest.raises(CaplocError, match=f'"{model_type}" is not supported: it is an encoder;'):
        require_heads(AutoConfig.for_model(model_type))


@pytest.mark.parametrize("model_type", ["bart", "t5", "whisper", "marian"])
def test_encoder_decoders_are_refused(model_type):
    with pytest.raises(CaplocError, match=f'"{model_type}" is not supported: it is an encoder-decoder;'):
        require_heads(AutoConfig.for_model(model_type))


@pytest.mark.parametrize("model_type", ["mamba", "mamba2", "rwkv", "falcon_mamba"])
def test_models_without_heads_are_refused(model_type):
    with pytest.raises(CaplocError, match=f'"{model_type}" is not supported: it has no attention heads;'):
        require_heads(AutoConfig.for_model(model_type))


def test_heads_that_write_in_pairs_are_refused():
    with pytest.raises(CaplocError, match="write in pairs"):
        require_heads(AutoConfig.for_model("diffllama"))


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("biogpt", {"intermediate_size": 48}),
        ("xglm", {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48}),
        ("helium", {"intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8}),
        ("codegen", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64}),
    ],
)
def test_what_the_table_lacks_is_found_by_shape(model_type, settings):
    model = tiny(model_type, **settings)
    assert model_type not in known_architectures()
    layers = attention_layers(model)
    assert grid_of(layers).heads_per_layer == (4, 4)
    try_heads(model, layers)


def test_what_shapes_leave_open_is_refused_by_name(llama):
    llama.config.model_type = "unheard_of"
    attention = llama.model.layers[0].self_attn
    attention.out_proj = torch.nn.Linear(64, 64)
    with pytest.raises(CaplocError, match=r'"unheard_of" is not supported: .* \(2 could\)'):
        attention_layers(llama)


def test_a_projection_that_is_not_heads_times_width_is_refused(llama):
    llama.model.layers[1].self_attn.o_proj = torch.nn.Linear(60, 64)
    with pytest.raises(CaplocError, match="layer 1 does not look like 8 heads of width 8"):
        attention_layers(llama)


def test_layers_that_share_one_projection_are_refused(llama):
    llama.model.layers[1].self_attn.o_proj = llama.model.layers[0].self_attn.o_proj
    with pytest.raises(CaplocError, match="share one projection"):
        attention_layers(llama)


def test_linear_attention_of_a_hybrid_is_no_head():
    sizes = {
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "num_key_value_heads": 2,
        "num_local_experts": 2,
    }
    model = tiny("minimax", layer_types=["linear_attention", "full_attention"], **sizes)
    assert grid_of(attention_layers(model)).layers == (1,)


def test_a_model_that_sees_the_future_is_no_decoder(llama):
    for layer in llama.model.layers:
        layer.self_attn.is_causal = False
    llama.set_attn_implementation("sdpa")
    llama.model.register_forward_pre_hook(
        lambda _m, args, kw: (args, kw | {"attention_mask": torch.zeros(1, 1, 8, 8)}), with_kwargs=True
    )
    with pytest.raises(CaplocError, match="no causal decoder"):
        try_heads(llama, attention_layers(llama))


def test_heads_that_change_nothing_are_refused(llama):
    for layer in attention_layers(llama):
        layer.projection.weight.data.zero_()
    with pytest.raises(CaplocError, match="knocking out a head changes nothing"):
        try_heads(llama, attention_layers(llama))


def test_a_projection_that_is_passed_by_is_refused():
    model = build("gpt2")
    attention = model.transformer.h[1].attn
    projection = attention.c_proj
    attention.forward = lambda hidden, **_: (hidden @ projection.weight, None)
    with pytest.raises(CaplocError, match="not called once a forward"):
        try_heads(model, attention_layers(model))
