"""Weights that do not fit their config are refused, and never filled with random numbers."""

import json

import pytest
from safetensors.torch import load_file, save_file

from caploc import load_model
from caploc.errors import CaplocError
from caploc.models.loading import choose_device
from caploc.models.shape import count_heads
from caploc.models.sources import resolve
from conftest import build, character_tokenizer


@pytest.fixture
def folder(tmp_path):
    build("llama").save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_is_loaded_frozen_with_its_grid(folder):
    model, _, grid = load_model(str(folder))
    assert len(grid) == count_heads(resolve(str(folder))) == 24
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_layers_without_weights_are_refused(folder):
    change_config(folder, num_hidden_layers=5)
    with pytest.raises(CaplocError, match=r"do not fit its config.json"):
        load_model(str(folder))


def test_a_missing_tensor_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.self_attn.o_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CaplocError, match=r"1 tensors are missing or of another shape, model.layers.1"):
        load_model(str(folder))


def test_truncated_weights_are_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CaplocError, match="cannot be loaded"):
        load_model(str(folder))


@pytest.mark.parametrize(
    "changes", [{"num_attention_heads": 0}, {"num_attention_heads": "4"}, {"hidden_act": "no"}]
)
def test_a_config_that_makes_no_model_is_refused_before_weights(folder, changes):
    change_config(folder, **changes)
    with pytest.raises(CaplocError):
        count_heads(resolve(str(folder)))


@pytest.mark.parametrize("content", ["[]", "null", "{", '{"model_type": ["llama"]}'])
def test_a_config_that_is_none_is_refused(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(CaplocError):
        count_heads(resolve(str(folder)))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": "../x.safetensors"}}']
)
def test_an_index_that_is_none_or_points_elsewhere_is_refused(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CaplocError):
        resolve(str(folder))


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(CaplocError, match=r"the device is cuda:99"):
        choose_device("cuda:99")
