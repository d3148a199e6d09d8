"""The product in a temporary repository, under real git and DVC."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
STAGES = [
    "check",
    "download",
    "baseline",
    "gradients",
    "design",
    "measure",
    "refine",
    "recover",
    "validate",
    "report",
]


class Repository:
    """A checkout of the product in a folder of its own, with other params."""

    def __init__(self, folder: Path, **params) -> None:
        self.folder = folder
        for name in ("lib", "stages", ".dvc/plots"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        for name in ("dvc.yaml", "params.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore"):
            shutil.copy(ROOT / name, folder / name)
        (folder / "reports").mkdir()
        everything = yaml.safe_load((ROOT / "params.yaml").read_text())
        for name, value in params.items():
            everything[name] = everything[name] | value if isinstance(value, dict) else value
        self.write(everything)
        self.run("git", "init", "--quiet", "--initial-branch=main")
        self.run("git", "config", "user.name", "A Tester")
        self.run("git", "config", "user.email", "tester@example.org")
        self.commit()

    def run(self, *command: str, code: int = 0) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
        environment = inherited | {"PATH": path}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def ran(self, *command: str) -> list[str]:
        """Run a DVC command; return the stages that it ran, and keep what it said."""
        self.said = self.run("dvc", *command)
        return re.findall(r"Running stage '(\w+)'", self.said)

    def measured(self, stage: str = "measure") -> tuple[int, int]:
        """Return how many evaluations the last command measured, and how many the store had."""
        new, known = re.search(rf"{stage}: (\d+) to measure, (\d+) in the store", self.said).groups()
        return int(new), int(known)

    def params(self) -> dict:
        return yaml.safe_load((self.folder / "params.yaml").read_text())

    def write(self, params: dict) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--allow-empty", "--message", "a state")

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()
