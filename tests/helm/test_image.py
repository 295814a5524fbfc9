"""The image and the chart agree, and the image holds all that the wheel holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
VALUES = yaml.safe_load((ROOT / "helm" / "values.yaml").read_text("utf-8"))


def test_the_image_runs_as_the_user_that_the_chart_asks_for() -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    security = VALUES["podSecurityContext"]

    assert user == (str(security["runAsUser"]), str(security["runAsGroup"]))
    assert f"--uid {security['runAsUser']} " in DOCKERFILE


def test_every_package_and_file_of_the_build_is_copied_and_not_ignored() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    packages = {path.split("/")[0] for path in included}
    kept = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE))

    for package in packages:
        assert f"COPY {package} {package}" in DOCKERFILE
    files = re.findall(r"^COPY (pyproject.*) \./$", DOCKERFILE, re.MULTILINE)[0].split()
    assert packages | set(files) == kept
    assert project["project"]["readme"] in files
    assert set(project["project"]["license-files"]) <= set(files)


def test_what_is_installed_comes_from_the_lock_by_hash() -> None:
    assert "--constraint requirements.lock" in DOCKERFILE
    assert "--require-hashes --requirement /runtime.lock" in DOCKERFILE
    assert "--no-deps" in DOCKERFILE
