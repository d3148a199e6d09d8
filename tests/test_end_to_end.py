"""The pipeline under real DVC, in a temporary repository, on tiny models trained on the spot."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from repository import STAGES, Repository
from trained import COUNTS, LEARNT, train

MASKS = 12


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    shapes = {"small": (2, 8), "deep": (3, 8)}
    for name, (layers, heads) in shapes.items():
        train(folder / name, layers=layers, heads=heads)
    return {name: folder / name for name in shapes}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, models):
    """A repository whose pipeline ran once, committed."""
    repository = Repository(
        tmp_path_factory.mktemp("repository"),
        model=str(models["small"]),
        sparsity=2,
        capabilities=LEARNT,
        prompts=COUNTS | {"floor": 0.0},
        design={"masks": MASKS, "density": 0.2},
        recovery={"bootstrap": 3},
        validation={"random_sets": 2, "bootstrap": 100},
        runtime={"device": "cpu", "progress": False},
    )
    assert sorted(repository.ran("repro")) == sorted(STAGES)
    assert repository.measured() == (MASKS * len(LEARNT), 0)
    repository.commit()
    return repository


@pytest.fixture
def repository(finished):
    """The finished repository; what a test does to it is undone."""
    yield finished
    for name in finished.run("git", "ls-files").splitlines():
        (finished.folder / name).touch()  # git may take a file changed within a second for unchanged
    finished.run("git", "checkout", "--force", "--quiet", ".")
    finished.run("dvc", "checkout", "--force", "--quiet")


def test_everything_is_written(repository):
    metrics = json.loads(repository.read("reports/metrics.json"))
    assert set(metrics) == {"agreement", "sequences", "mean"}
    assert {"baseline", "knocked_out", "drop", "spillover", "selectivity"} <= set(metrics["sequences"])
    assert metrics["agreement"]["baseline"] > 0.5
    for name in ("report.html", "figures/heads.png", "plots/curve.json"):
        assert len(repository.read(f"reports/{name}")) > 300
    assert repository.run("git", "status", "--porcelain") == ""
    assert "sequences" in repository.run("caploc", "show")


def test_prompts_are_the_same_under_every_mask_and_not_those_of_the_proof(repository):
    baseline = pd.read_parquet(repository.folder / "artifacts/baseline.parquet")
    for name in LEARNT:
        table = pd.read_parquet(repository.folder / f"artifacts/measurements/{name}.parquet")
        ids = table.groupby("mask_id")["prompt_id"].agg(tuple)
        assert len(ids) == MASKS
        split = baseline[baseline["capability"] == name].groupby("split")["prompt_id"].agg(tuple)
        assert set(ids) == {split["measure"]}
        assert not set(split["measure"]) & set(split["validate"])


def test_nothing_runs_twice(repository):
    assert repository.ran("repro") == []


def test_runtime_settings_rerun_nothing_but_the_check(repository):
    assert set(repository.ran("exp", "run", "-S", "runtime.batch_tokens=512")) <= {"check"}


def test_sparsity_reruns_recovery_and_what_follows_and_measures_no_mask(repository):
    ran = repository.ran("exp", "run", "-S", "sparsity=1")
    assert ran == ["check", "refine", "recover", "validate", "report"]
    assert repository.measured("refine") == (0, MASKS * len(LEARNT))


def test_refinement_adds_masks_to_the_design_and_only_these_are_measured(repository):
    ran = repository.ran("exp", "run", "-S", "refinement.masks=4", "-S", "refinement.rounds=2")
    assert "measure" not in ran
    design = pd.read_parquet(repository.folder / "artifacts/design.parquet")
    refined = pd.read_parquet(repository.folder / "artifacts/refinement/design.parquet")
    assert MASKS < len(refined) <= MASKS + 4
    assert [h.tolist() for h in refined["heads"][:MASKS]] == [h.tolist() for h in design["heads"]]
    for name in LEARNT:
        table = pd.read_parquet(repository.folder / f"artifacts/refinement/{name}.parquet")
        assert table["mask_id"].nunique() == len(refined)
    assert json.loads(repository.read("artifacts/heads.json"))["masks"] == len(refined)
    assert repository.ran("exp", "run", "-S", "recovery.estimator=lasso", "-S", "refinement.masks=0") == [
        *("check", "refine", "recover", "validate", "report")
    ]


def test_gradients_may_be_left_out(repository):
    ran = repository.ran("exp", "run", "-S", "gradients.gates=[]")
    assert "gradients" in ran
    assert "recover" in ran
    assert len(pd.read_parquet(repository.folder / "artifacts/gradients.parquet")) == 0


def test_masks_may_follow_the_gradients(repository):
    assert "recover" in repository.ran("exp", "run", "-S", "design.scheme=weighted")


def test_an_exhaustive_sweep_is_a_design_like_others(repository):
    ran = repository.ran("exp", "run", "-S", "design.scheme=single", "-S", "design.masks=16")
    assert "report" in ran


def test_another_seed_downloads_nothing(repository):
    ran = repository.ran("exp", "run", "-S", "seed=1")
    assert "download" not in ran
    assert "measure" in ran


def test_a_temporary_checkout_shares_the_measurements_and_runs_its_own_library(repository):
    library = repository.folder / "lib/caploc/localization.py"
    library.write_text(library.read_text() + '\nprint("this is the experiment\'s own library")\n')
    repository.ran("exp", "run", "--temp", "-S", "sparsity=1", "-S", f"design.masks={MASKS + 1}")
    assert "this is the experiment's own library" in repository.said
    assert repository.measured() == (len(LEARNT), MASKS * len(LEARNT))


def test_another_model_and_back_restores_everything(repository, models):
    metrics, plots = repository.read("reports/metrics.json"), repository.read("reports/plots/effects.json")
    ran = repository.ran("exp", "run", "--name", "deep", "-S", f"model={models['deep']}")
    assert ran == STAGES
    assert repository.read("reports/plots/effects.json") != plots
    assert repository.ran("exp", "run", "-S", f"model={models['small']}") == []
    assert repository.read("reports/metrics.json") == metrics
    assert repository.read("reports/plots/effects.json") == plots


def test_more_masks_measure_only_the_new_ones(repository):
    some, more = MASKS + 2, MASKS + 5
    repository.ran("exp", "run", "-S", f"design.masks={some}")
    repository.ran("exp", "run", "-S", f"design.masks={more}")
    assert repository.measured() == (3 * len(LEARNT), some * len(LEARNT))


def test_a_new_capability_is_the_only_one_measured(repository):
    repository.write(repository.params() | {"capabilities": [*LEARNT, "prose"]})
    repository.ran("repro")
    assert repository.measured("baseline") == (2, 2 * len(LEARNT))
    assert repository.measured() == (MASKS, MASKS * len(LEARNT))


def test_a_capability_that_the_model_lacks_stops_the_run_before_measuring(repository):
    repository.write(repository.params() | {"capabilities": ["capitals", "agreement"]})
    repository.said = repository.run("dvc", "repro", code=255)
    assert "the model does not have capitals (0.00 of the prompts correct" in repository.said
    assert "Running stage 'measure'" not in repository.said


def test_two_models_side_by_side_without_a_network(repository, models):
    repository.ran("exp", "run", "--name", "side", "-S", f"model={models['deep']}")
    repository.run("git", "checkout", "--force", "--quiet", ".")
    repository.run("dvc", "plots", "diff", "HEAD", "side", "--out", "side_by_side")
    page = repository.read("side_by_side/index.html").decode()
    shutil.rmtree(repository.folder / "side_by_side")
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=\W?https?:", page)
    for plot in ("effects", "curve", "drops", "transfer"):
        assert f"reports_plots_{plot}" in page
    assert page.count('"rev": "side"') > 10
    assert page.count('"rev": "HEAD"') > 10


def test_a_killed_measurement_resumes_and_ends_the_same(repository):
    table = repository.read("artifacts/measurements/sequences.parquet")
    shutil.rmtree(repository.folder / ".cache")
    script = [sys.executable, "stages/measure.py"]
    process = subprocess.Popen(script, cwd=repository.folder, stderr=subprocess.DEVNULL)
    store = repository.folder / ".cache/measurements"
    while len(list(store.rglob("*.json"))) < MASKS and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list(store.rglob("*.json")))
    assert MASKS <= done < MASKS * len(LEARNT)
    repository.said = repository.run(*script)
    assert repository.measured() == (MASKS * len(LEARNT) - done, done)
    assert repository.read("artifacts/measurements/sequences.parquet") == table


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=smollm2-135m-instrukt", 'did you mean "smollm2-135m-instruct"?'),
        ("sparsity=0", "sparsity: "),
        ("sparsity=-3", "sparsity: "),
        ("sparsity=2.5", "sparsity: "),
        ("sparsity=abc", "sparsity: "),
        ("sparsity=null", "sparsity: "),
        ("sparsity=17", "has only 16 heads"),
        ("capabilities=[addition,subtraction]", 'unknown capability "subtraction"'),
        ("capabilities=[addition,addition]", "addition is listed twice"),
        ("design.density=0", "design.density: "),
        ("design.density=1", "design.density: "),
        ("design.masks=2", "too few to fit"),
        ("prompts.measure=100000", "prompts.measure"),
        ("design.scheme=single", "set design.masks to 16"),
        ("gradients.gates=[2.0]", "gradients.gates.0: "),
        ("refinement.masks=-1", "refinement.masks: "),
        ("recovery.estimator=ols", "recovery.estimator: "),
        ("+design.colour=red", "design.colour: unknown key"),
        ("+colour=red", "colour: unknown key"),
    ],
)
def test_bad_input_is_told_by_the_check_stage_and_loses_nothing(repository, setting, message):
    before = repository.read("artifacts/heads.json"), repository.read("reports/metrics.json")
    repository.said = repository.run("dvc", "exp", "run", "-S", setting, code=255)
    assert message in repository.said
    assert "Traceback" not in repository.said
    assert re.findall(r"Running stage '(\w+)'", repository.said) == ["check"]
    assert (repository.read("artifacts/heads.json"), repository.read("reports/metrics.json")) == before


def test_an_unreadable_params_file_stops_the_check(repository):
    (repository.folder / "params.yaml").write_text("sparsity: [")
    said = repository.run(sys.executable, "stages/check.py", code=1)
    assert "error: params.yaml cannot be read" in said
    assert "Traceback" not in said
