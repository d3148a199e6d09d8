"""dvc.yaml against the code: each stage's deps are exactly the library modules it imports."""

import ast
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "lib"
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def imported_modules(path, seen=frozenset()):
    """Return the library files that a script imports, directly or not, at its top or in its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("caploc"):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("caploc")]
        else:
            continue
        for name in names:
            file = LIBRARY / (name.replace(".", "/") + ".py")
            if file.exists() and file not in seen | found:
                found |= {file} | imported_modules(file, seen | found | {file})
    return found


def data_files(modules):
    """Return the files beside modules that they read as package data."""
    return {LIBRARY / "caploc/presets.yaml"} if LIBRARY / "caploc/models/sources.py" in modules else set()


@pytest.mark.parametrize("name", STAGES)
def test_deps_are_exactly_what_the_stage_imports(name):
    script = ROOT / "stages" / f"{name}.py"
    modules = imported_modules(script)
    expected = {script, ROOT / "stages/_stage.py", *modules, *data_files(modules)}
    code = {ROOT / dep for dep in STAGES[name]["deps"] if not dep.startswith("artifacts/")}
    assert sorted(map(str, code)) == sorted(map(str, expected))


def test_package_markers_hold_no_code_that_a_stage_could_depend_on():
    for marker in LIBRARY.glob("caploc/*/__init__.py"):
        (docstring,) = ast.parse(marker.read_text()).body
        assert isinstance(docstring, ast.Expr), marker


def test_stages_are_thin():
    for script in (ROOT / "stages").glob("*.py"):
        assert len(script.read_text().splitlines()) <= 60, script


@pytest.mark.parametrize("name", ["design", "measure"])
def test_measuring_never_depends_on_sparsity(name):
    assert "sparsity" not in STAGES[name].get("params", [])


def test_runtime_settings_are_no_stages_params():
    listed = [param for stage in STAGES.values() for param in stage.get("params", [])]
    assert not any("runtime" in str(param) for param in listed)


def test_caches_are_no_deps():
    ignored = (ROOT / ".dvcignore").read_text().split()
    assert {"__pycache__", "*.pyc", "/.cache", "*.egg-info"} <= set(ignored)
    for stage in STAGES.values():
        assert not any((ROOT / dep).is_dir() for dep in stage["deps"] if not dep.startswith("artifacts/"))
