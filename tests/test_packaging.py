"""The built packages contain every module and the type marker, and need only the three run-time dependencies."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(360)  # the first test builds the wheel

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "transport", "providers")
WANTED_BY_THE_BUILD = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")

RUN_TIME = {"manystream", "trio", "h11", "orjson"}
BROUGHT_ALONG = {"attr", "attrs", "outcome", "sniffio", "sortedcontainers", "idna", "exceptiongroup", "cffi"}
"""The top-level modules that trio imports."""

THIRD_PARTY_MODULES = """
import json, sys
before = set(sys.modules)
import manystream
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(name for name in loaded if name not in sys.stdlib_module_names)))
"""


def modules() -> set[str]:
    """Return all modules of the checkout, as paths in the package."""
    package = ROOT / "manystream"
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    files += [
        path for path in package.rglob("*.py") if not any(package / name in path.parents for name in PACKAGES)
    ]  # the links lead to folders that are already in the list
    return {
        "/".join(("manystream", *(part for part in path.relative_to(ROOT).parts if part != "manystream")))
        for path in files
        if "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist, and a wheel from it; return their folder.

    They are built from a copy of the checkout: a build leaves files, which would become part of the next wheel.
    """
    pytest.importorskip("build")
    pytest.importorskip("setuptools", minversion="77")
    place = tmp_path_factory.mktemp("packaging")
    copy = place / "source"
    copy.mkdir()
    for name in WANTED_BY_THE_BUILD:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    for folder in (*PACKAGES, "manystream"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return place / "dist"


def test_the_wheel_has_every_module_and_the_type_marker(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        links = [entry.filename for entry in archive.infolist() if (entry.external_attr >> 16) & 0o170000 == 0o120000]
    assert modules() <= names
    assert "manystream/py.typed" in names
    assert not links
    assert {name for name in names if name.endswith(".py")} == modules(), "the wheel holds what the checkout does not"


def test_the_source_distribution_has_real_files(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
        links = [member.name for member in archive.getmembers() if member.issym() or member.islnk()]
    assert modules() <= files
    assert {"LICENSE", "README.md", "pyproject.toml"} <= files
    assert not links


def test_importing_loads_only_the_run_time_dependencies() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THIRD_PARTY_MODULES], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name for name in json.loads(done.stdout) if not name.startswith("_")}
    assert "manystream" in loaded
    assert loaded <= RUN_TIME | BROUGHT_ALONG


def test_the_version_is_the_same_everywhere() -> None:
    import manystream

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert manystream.__version__ == project["version"]
    assert f"[{project['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_run_time_dependencies_are_three() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [requirement.partition(">")[0] for requirement in project["dependencies"]] == ["trio", "h11", "orjson"]


def requirements(group: str, groups: dict[str, list[str | dict[str, str]]]) -> list[str]:
    """Return the requirements of a dependency group, including those of the groups that it includes."""
    found: list[str] = []
    for entry in groups[group]:
        found += [entry] if isinstance(entry, str) else requirements(entry["include-group"], groups)
    return found


def pins() -> dict[str, str]:
    """Return package → the version that constraints.txt pins."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert all(line.count("==") == 1 and "/" not in line and "@" not in line for line in pinned)
    pairs = (line.split("==") for line in pinned)
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test_constraints_pin_every_dependency_extra_and_group() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project, groups = document["project"], document["dependency-groups"]
    listed = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    listed += [requirement for group in groups for requirement in requirements(group, groups)]
    names = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in project["dependencies"] + listed}
    assert names <= pins().keys() | {"ray"}, "tests/ray/requirements.txt pins Ray and what it needs"


def test_the_requirements_of_the_cluster_tests_are_pinned_once() -> None:
    lines = (ROOT / "tests" / "ray" / "requirements.txt").read_text("utf-8").splitlines()
    pinned = [line.partition("==")[0] for line in lines if not line.startswith("#")]
    assert pinned[0] == "ray[data]"
    assert all("==" in line for line in lines if not line.startswith("#"))
    assert not {name.lower().replace("_", "-") for name in pinned} & pins().keys()


def test_constraints_pin_a_pip_with_dependency_groups() -> None:
    major, minor = pins()["pip"].split(".")[:2]
    assert (int(major), int(minor)) >= (25, 1)


def test_the_makefile_installs_every_group_and_all_extras() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(re.findall(r"--group (\w+)\)", makefile)) == document["dependency-groups"].keys()
    extras = [
        extra for extra in document["project"]["optional-dependencies"] if extra != "ray"
    ]  # `make ray` installs it
    assert f"EXTRAS := {','.join(extras)}\n" in makefile
    created = makefile[makefile.index("$(VENV)/.created: constraints.txt") :]
    assert created.index("install --constraint constraints.txt pip setuptools") < created.index("touch")


def test_every_text_installs_an_extra_in_a_way_that_works() -> None:
    """Nothing is published: an extra is installed from a checkout, or from the file of a wheel."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    folders = [*PACKAGES, "manystream", "docs", "examples"]
    files = [path for folder in folders for suffix in ("py", "md") for path in (ROOT / folder).rglob(f"*.{suffix}")]
    wrong = [
        (path.name, found[0])
        for path in [*files, *ROOT.glob("*.md")]
        for found in re.finditer(r"(\.|\.whl|\bmanystream)\[([a-z0-9,]+|\{extra\})\]", path.read_text("utf-8"))
        if found[1] == "manystream" or not set(found[2].split(",")) <= {*extras, "{extra}"}
    ]
    assert not wrong


def test_the_wheel_publishes_the_extras_of_users_only(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    extras = [line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra")]
    assert extras == ["cli", "cost", "otel", "httpx2", "httpx", "ray", "tables", "plots", "zstd"]
    assert not [line for line in lines if line.startswith(("Project-URL", "Home-page"))], "there is no address yet"
