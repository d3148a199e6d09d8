"""Knockouts are what zeroed projection columns would be, and leave nothing behind."""

import copy

import pytest
import torch

from caploc import HeadGrid, knockout
from caploc.errors import CaplocError
from caploc.knockouts import mask_gates
from caploc.models.attention import attention_layers, head_grid
from caploc.replacements import MeanReplacement, ResampleReplacement
from conftest import build, zero_columns

INPUTS = torch.arange(24).reshape(2, 12) % 128


def test_logits_equal_those_of_zeroed_columns(model):
    heads = [(0, 1), (2, 3), (2, 0)]
    oracle = copy.deepcopy(model)
    zero_columns(oracle, heads)
    with knockout(model, heads):
        found = model(INPUTS).logits
    torch.testing.assert_close(found, oracle(INPUTS).logits, atol=1e-5, rtol=1e-5)
    assert (found - model(INPUTS).logits).abs().max() > 1e-3


def test_a_head_is_a_slice_of_the_projections_input_not_of_its_output(llama):
    layer = attention_layers(llama)[1]

    def zero_output_slice(_module, _args, output):
        return torch.cat(
            [torch.zeros_like(output[..., : layer.head_width]), output[..., layer.head_width :]], -1
        )

    with knockout(llama, ["L1H0"]):
        ours = llama(INPUTS).logits
    handle = layer.projection.register_forward_hook(zero_output_slice)
    mistaken = llama(INPUTS).logits
    handle.remove()
    assert (ours - mistaken).abs().max() > 1e-3


def test_head_width_comes_from_the_projection_not_from_hidden_size():
    model = build("qwen3")
    assert {(layer.n_heads, layer.head_width) for layer in attention_layers(model)} == {(4, 32)}


def test_grouped_query_heads_are_told_apart(llama):
    grid = head_grid(llama)
    assert grid == HeadGrid((8, 8, 8))
    seen = {}
    projection = attention_layers(llama)[0].projection
    handle = projection.register_forward_pre_hook(lambda _m, args: seen.update(intact=args[0].clone()))
    with knockout(llama, [5]):
        spy = projection.register_forward_pre_hook(lambda _m, args: seen.update(gated=args[0].clone()))
        llama(INPUTS)
        spy.remove()
    handle.remove()
    changed = (seen["intact"] != seen["gated"]).any(0).any(0).reshape(8, 8).any(1)
    assert changed.tolist() == [False] * 5 + [True] + [False] * 2


def test_a_whole_layer_knocked_out_leaves_exactly_the_projections_bias(gpt2):
    outputs = {}
    projection = attention_layers(gpt2)[1].projection
    handle = projection.register_forward_hook(lambda _m, _a, output: outputs.update(found=output))
    with knockout(gpt2, [(1, head) for head in range(4)]):
        gpt2(INPUTS)
    handle.remove()
    assert torch.equal(outputs["found"], projection.bias.expand_as(outputs["found"]))
    assert projection.bias.abs().max() > 0


def test_nothing_outlives_an_exception_and_foreign_hooks_stay(model):
    intact = model(INPUTS).logits
    fired = []
    attention_layers(model)[0].projection.register_forward_pre_hook(lambda *_: fired.append(1))
    with pytest.raises(KeyboardInterrupt), knockout(model, ["L0H0", "L1H1"]):
        raise KeyboardInterrupt
    assert torch.equal(model(INPUTS).logits, intact)
    assert fired == [1]


def test_every_row_may_have_gates_of_its_own(model):
    grid = head_grid(model)
    gates = torch.ones(2, len(grid))
    gates[0, 1] = 0
    gates[1, [2, 5]] = 0
    with knockout(model, gates):
        together = model(INPUTS).logits
    for row, heads in enumerate([[1], [2, 5]]):
        with knockout(model, heads):
            alone = model(INPUTS[row : row + 1]).logits
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-5)


def test_gates_that_do_not_fit_are_refused(llama):
    with pytest.raises(ValueError, match=r"\[rows, 24\]"), knockout(llama, torch.ones(2, 23)):
        pass
    with (
        pytest.raises(ValueError, match="3 rows of gates met a batch of 2"),
        knockout(llama, torch.zeros(3, 24)),
    ):
        llama(INPUTS)
    for gates in (
        torch.ones(2, 24, dtype=torch.bool),
        torch.full((2, 24), float("nan")),
        torch.ones(2, 24).int(),
    ):
        with pytest.raises(ValueError, match="finite floating-point"), knockout(llama, gates):
            pass
    with pytest.raises(ValueError, match="3 rows of gates met"), knockout(llama, torch.ones(3, 24)):
        llama(INPUTS)
    with pytest.raises(CaplocError, match="no head L7H0"), knockout(llama, ["L7H0"]):
        pass


def test_gradients_reach_the_gates(llama):
    gates = torch.ones(1, 24, requires_grad=True)
    with knockout(llama, gates):
        llama(INPUTS).logits.log_softmax(-1)[..., 3].mean().backward()
    assert (gates.grad != 0).all()


def test_no_forward_is_replaced(model):
    before = [type(module).forward for module in model.modules()]
    with knockout(model, [0, 1]):
        assert all("forward" not in vars(module) for module in model.modules())
        assert [type(module).forward for module in model.modules()] == before


def test_scale_is_the_gate_of_the_heads_given(model):
    with knockout(model, [1, 6], scale=0.25):
        halved = model(INPUTS).logits
    gates = torch.ones(1, len(head_grid(model)))
    gates[0, [1, 6]] = 0.25
    with knockout(model, gates):
        assert torch.equal(model(INPUTS).logits, halved)
    with knockout(model, [1, 6], scale=1):
        assert torch.equal(model(INPUTS).logits, model(INPUTS).logits)


def test_beams_and_several_sequences_need_a_row_of_gates_each(model):
    grid = head_grid(model)
    masks = [[1], [2, 5]]
    settings = {"max_new_tokens": 5, "pad_token_id": 0, "attention_mask": torch.ones_like(INPUTS)}
    settings |= {"num_beams": 3, "num_return_sequences": 2, "do_sample": False}
    gates = mask_gates(grid, masks)
    with knockout(model, gates), pytest.raises(ValueError, match=r"a row each: gates\.repeat_interleave"):
        model.generate(INPUTS, **settings)
    with knockout(model, gates.repeat_interleave(3, dim=0)):
        together = model.generate(INPUTS, **settings)
    for row, heads in enumerate(masks):
        alone_settings = settings | {"attention_mask": settings["attention_mask"][:1]}
        with knockout(model, heads):
            alone = model.generate(INPUTS[row : row + 1], **alone_settings)
        assert torch.equal(together[2 * row : 2 * row + 2], alone)


def test_one_block_serves_inference_mode_and_autograd(llama):
    with knockout(llama, ["L0H0", "L2H7"]):
        with torch.inference_mode():
            inferred = llama(INPUTS).logits
        weight = llama.lm_head.weight.requires_grad_()
        logits = llama(INPUTS).logits
        logits.sum().backward()
    assert torch.equal(inferred, logits)
    assert weight.grad is not None


def test_a_model_spread_over_devices_with_weights_on_disk(llama, tmp_path):
    from accelerate import dispatch_model

    with knockout(llama, ["L0H1", "L1H6"]):
        expected = llama(INPUTS).logits
    places = {
        "model.embed_tokens": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.layers.2": "disk",
    }
    places |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk"}
    dispatched = dispatch_model(llama, places, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
    with knockout(dispatched, ["L0H1", "L1H6"]):
        torch.testing.assert_close(dispatched(INPUTS).logits, expected, atol=1e-5, rtol=1e-5)


def test_a_compiled_model_is_refused_rather_than_left_intact(llama):
    with pytest.raises(CaplocError, match="compiled"), knockout(torch.compile(llama), [0]):
        pass
    llama.compile()
    with pytest.raises(CaplocError, match="compiled"), knockout(llama, [0]):
        pass


def test_half_precision_gates_follow_the_model(llama):
    model = llama.bfloat16()
    oracle = copy.deepcopy(model)
    zero_columns(oracle, [(1, 2)])
    with knockout(model, ["L1H2"]):
        torch.testing.assert_close(model(INPUTS).logits, oracle(INPUTS).logits)


def test_resampled_values_are_those_of_the_donor_at_the_same_position(llama):
    donors = torch.arange(40, 70).reshape(2, 15)
    padded = torch.cat([torch.zeros(2, 4, dtype=torch.long), donors], 1)
    mask = (torch.arange(19) >= 4).long().expand(2, 19)
    replacement = ResampleReplacement(llama, {"input_ids": padded, "attention_mask": mask})
    layer = attention_layers(llama)[0]
    seen = []
    spy = layer.projection.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    llama(donors)
    with knockout(llama, [(0, 3)], replacement=replacement):
        inner = layer.projection.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
        llama(INPUTS)
        inner.remove()
    spy.remove()
    torch.testing.assert_close(seen[-1][..., 24:32], seen[0][:, :12, 24:32], atol=1e-5, rtol=1e-5)
    assert torch.equal(seen[-1][..., 32:], seen[-2][..., 32:])


def test_resampling_holds_with_a_cache_and_left_padding(llama):
    replacement = ResampleReplacement(llama, {"input_ids": torch.arange(60, 90)[None]})
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), INPUTS[:1]], 1)
    mask = torch.cat([torch.zeros(1, 3, dtype=torch.long), torch.ones(1, 12, dtype=torch.long)], 1)
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with knockout(llama, ["L1H1", "L2H0"], replacement=replacement):
        plain = llama.generate(INPUTS[:1], attention_mask=mask[:, 3:], use_cache=False, **settings)
        cached = llama.generate(padded, attention_mask=mask, use_cache=True, **settings)
    assert torch.equal(plain[0], cached[0, 3:])


def test_a_mean_needs_tokens(llama):
    with pytest.raises(ValueError, match="at least one reference token"):
        MeanReplacement(llama, [])
