"""Exported checkpoints are whole, ordinary, and say what they lack."""

import json

import pytest
import torch

from caploc import load_model
from caploc.errors import CaplocError
from caploc.exporting import export, require_empty, write_knockout
from caploc.models.attention import attention_layers


def test_only_the_heads_columns_are_zero(model):
    names = write_knockout(model, ["L2H3", (0, 1)])
    assert names == ["L0H1", "L2H3"]
    for layer in attention_layers(model):
        weight = layer.projection.weight if model.config.model_type == "gpt2" else layer.projection.weight.T
        dead = (weight == 0).all(1).reshape(layer.n_heads, layer.head_width)
        expected = {0: [1], 1: [], 2: [3]}[layer.number]
        assert [head for head in range(layer.n_heads) if dead[head].any()] == expected
        assert all(dead[head].all() for head in expected)


def test_our_own_loader_takes_the_checkpoint(llama, tokenizer, tmp_path):
    intact = llama(torch.arange(9)[None]).logits
    export(llama, tokenizer, ["L1H7"], tmp_path / "new" / "out", source="tiny")
    folder = tmp_path / "new" / "out"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["out"]
    assert json.loads((folder / "knockout.json").read_text()) == {"model": "tiny", "knocked_out": ["L1H7"]}
    assert not list(folder.glob("*.bin"))
    loaded = load_model(str(folder))
    found = loaded.model(torch.arange(9)[None]).logits
    assert not torch.allclose(found, intact)
    torch.testing.assert_close(found, llama(torch.arange(9)[None]).logits, atol=5e-5, rtol=1e-5)
    assert loaded.tokenizer("abc")["input_ids"] == tokenizer("abc")["input_ids"]


def test_a_folder_that_holds_something_is_left_alone(llama, tokenizer, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(CaplocError, match="is not an empty folder"):
        export(llama, tokenizer, [0], tmp_path, source="tiny")
    with pytest.raises(CaplocError, match="is not an empty folder"):
        require_empty(tmp_path / "mine.txt")
    assert (llama.model.layers[0].self_attn.o_proj.weight != 0).all()


def test_quantized_weights_are_refused(llama):
    projection = llama.model.layers[0].self_attn.o_proj
    projection.weight = torch.nn.Parameter(torch.zeros(64, 64, dtype=torch.int8), requires_grad=False)
    with pytest.raises(CaplocError, match="layer 0 are quantized"):
        write_knockout(llama, ["L0H0"])


def test_weights_that_layers_share_are_refused(llama):
    projections = [layer.projection for layer in attention_layers(llama)]
    projections[1].weight = projections[0].weight
    with pytest.raises(CaplocError, match="shares its output projection"):
        write_knockout(llama, ["L1H0"])
