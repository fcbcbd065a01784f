"""A module of which the extra is not installed says which one."""

import subprocess
import sys

EXTRAS = {
    "httpx2": ("httpx2", "import manystream.httpx2"),
    "httpx": ("httpx", "import manystream.httpx"),
    "otel": ("opentelemetry", "import manystream.otel"),
    "ray": ("ray", "from manystream.ray.ray_cluster import import_ray; import_ray()"),
    "tables": ("pyarrow", "from manystream.batch.tables import import_pyarrow; import_pyarrow('pyarrow')"),
    "cost": ("genai_prices", "from manystream.cost import check_installed; check_installed()"),
}
"""Maps an extra to its package and a program that needs it."""
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1::2]))
for program in sys.argv[2::2]:
    try:
        exec(program)
    except Exception as error:
        print(error)
"""


def test_an_import_without_its_extra_names_the_extra() -> None:
    words = [word for pair in EXTRAS.values() for word in pair]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == len(EXTRAS)
    for extra, line in zip(EXTRAS, said, strict=True):
        assert f"pip install '.[{extra}]' in manystream's checkout" in line
