import copy
from pathlib import Path

import pytest
import yaml

from caploc.errors import CaplocError
from caploc.params import load_params

GOOD = yaml.safe_load((Path(__file__).parents[1] / "params.yaml").read_text())


def load(tmp_path, **changes):
    raw = copy.deepcopy(GOOD)
    for key, value in changes.items():
        *sections, last = key.split("__")
        target = raw
        for section in sections:
            target = target[section]
        target[last] = value
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(raw))
    return load_params(path)


def test_the_repositorys_own_params_are_valid(tmp_path):
    params = load(tmp_path)
    params.require_heads(270)
    assert params.sparsity == 5


@pytest.mark.parametrize("value", [0, -3, 2.5, "abc", None, True, [5]])
def test_sparsity_must_be_a_positive_whole_number(tmp_path, value):
    with pytest.raises(CaplocError, match=r"sparsity: .*\(got "):
        load(tmp_path, sparsity=value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("design__density", 0, "design.density"),
        ("design__density", 1, "design.density"),
        ("design__density", float("nan"), "design.density"),
        ("design__masks", 0, "design.masks"),
        ("design__masks", 10**22, "design.masks"),
        ("recovery__alpha", 1.0, "recovery.alpha"),
        ("validation__bootstrap", 10**12, "validation.bootstrap"),
        ("prompts__measure", 1, "prompts.measure"),
        ("design__scheme", "random", "design.scheme"),
        ("prompts__validate", 0, "prompts.validate"),
        ("recovery__alpha", 0, "recovery.alpha"),
        ("recovery__score", "loss", "recovery.score"),
        ("recovery__estimator", "ols", "recovery.estimator"),
        ("gradients__gates", [0.0], "gradients.gates.0"),
        ("gradients__gates", 1.0, "gradients.gates"),
        ("gradients__gates", ["one"], "gradients.gates.0"),
        ("refinement__masks", -1, "refinement.masks"),
        ("refinement__rounds", 0, "refinement.rounds"),
        ("localization__objective", "best", "localization.objective"),
        ("runtime__device", "tpu", "runtime.device"),
        ("dtype", "int8", "dtype"),
        ("seed", -1, "seed"),
        ("model", "", "model"),
        ("model", None, "model"),
        ("capabilities", [], "capabilities"),
        ("capabilities", None, "capabilities"),
        ("design", None, "design"),
        ("capabilities", ["prose", "addition", "prose"], "prose is listed twice"),
        ("sparsty", 5, 'sparsty: unknown key (did you mean "sparsity"?)'),
        ("design__mask", 5, 'design.mask: unknown key (did you mean "masks"?)'),
        ("prompts__valid", 5, 'prompts.valid: unknown key (did you mean "validate"?)'),
        ("runtime__x", 5, "runtime.x: unknown key"),
    ],
)
def test_the_key_at_fault_is_named(tmp_path, key, value, message):
    with pytest.raises(CaplocError) as error:
        load(tmp_path, **{key: value})
    assert message in str(error.value)
    assert "mend it there" in str(error.value)


def test_schemes_with_conditions_name_them(tmp_path):
    with pytest.raises(CaplocError, match=r"set design\.masks to 270"):
        load(tmp_path, design__scheme="single").require_heads(270)
    load(tmp_path, design__scheme="single", design__masks=270).require_heads(270)
    with pytest.raises(CaplocError, match=r"set gradients\.gates to \[1.0\]"):
        load(tmp_path, design__scheme="weighted", gradients__gates=[]).require_heads(270)


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(CaplocError) as error:
        load(tmp_path, sparsity=0, design__density=2)
    assert "sparsity" in str(error.value)
    assert "design.density" in str(error.value)


def test_a_missing_key_is_named(tmp_path):
    raw = copy.deepcopy(GOOD)
    del raw["seed"]
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(CaplocError, match="seed: missing"):
        load_params(path)


@pytest.mark.parametrize("content", [b"sparsity: [", b"\xff\xfe", b"", b"- a\n- b\n", b"a: b: c"])
def test_an_unreadable_file_is_named(tmp_path, content):
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(CaplocError, match=r"params\.yaml"):
        load_params(path)


def test_a_lacking_file_is_named(tmp_path):
    with pytest.raises(CaplocError, match=r"nowhere\.yaml cannot be read"):
        load_params(tmp_path / "nowhere.yaml")


def test_sparsity_beyond_the_heads(tmp_path):
    with pytest.raises(CaplocError, match=r"sparsity is 271, but .* has only 270 heads"):
        load(tmp_path, sparsity=271, design__masks=1000).require_heads(270)


@pytest.mark.parametrize(
    ("masks", "density", "sparsity", "enough"),
    [(53, 0.02, 5, False), (54, 0.02, 5, True), (9, 0.5, 5, False)],
)
def test_too_few_masks_to_fit(tmp_path, masks, density, sparsity, enough):
    params = load(tmp_path, design__masks=masks, design__density=density, sparsity=sparsity)
    if enough:
        params.require_heads(270)
    else:
        with pytest.raises(CaplocError, match="too few to fit"):
            params.require_heads(270)


@pytest.mark.parametrize("density", [0.999, 0.003])
def test_a_mask_takes_some_heads_and_leaves_some(tmp_path, density):
    with pytest.raises(CaplocError, match="at least one head and not all"):
        load(tmp_path, design__density=density, design__masks=5000).require_heads(270)


def test_numbers_are_read_as_dvc_reads_them(tmp_path):
    text = (Path(__file__).parents[1] / "params.yaml").read_text()
    path = tmp_path / "params.yaml"
    path.write_text(text.replace("seed: 0", "seed: 010").replace("alpha: 0.01", "alpha: 1e-05"))
    params = load_params(path)
    assert params.seed == 10
    assert params.recovery.alpha == 1e-5


def test_a_key_given_twice_is_refused(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("seed: 1\nseed: 2\n")
    with pytest.raises(CaplocError, match="duplicate key"):
        load_params(path)
