"""A module of which the extra is not installed says which one."""

import subprocess
import sys

import pytest

HIDE = "import sys; sys.modules[{package!r}] = None; "


@pytest.mark.parametrize(
    ("extra", "package", "program"),
    [
        ("httpx2", "httpx2", "import manystream.httpx2"),
        ("httpx", "httpx", "import manystream.httpx"),
        ("otel", "opentelemetry", "import manystream.otel"),
        ("ray", "ray", "from manystream.ray.ray_cluster import import_ray; import_ray()"),
        ("tables", "pyarrow", "from manystream.batch.tables import import_pyarrow; import_pyarrow('pyarrow')"),
        ("cost", "genai_prices", "from manystream.cost import check_installed; check_installed()"),
    ],
)
def test_an_import_without_its_extra_names_the_extra(extra: str, package: str, program: str) -> None:
    code = HIDE.format(package=package) + program
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert f"pip install '.[{extra}]' in manystream's checkout" in done.stderr.splitlines()[-1]
