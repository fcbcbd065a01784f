"""The modules that the type check makes of a page's blocks."""

import ast

import pytest

from tests.docs.check_types import bound, every_module, missing, modules
from tests.support.blocks import read_blocks

PAGE = """
```python
import manystream as ms


async def main() -> None:
    print(ms)
```

```python
reply = await engine.request(request)
```

```python
print(reply)
```
"""


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("print(a)", {"a"}),
        ("a = 1\nprint(a)", set()),
        ("a = a + 1", {"a"}),
        ("def f():\n    return later\nlater = 1", set()),
        ("import a.b\na.b", set()),
        ("for a in b:\n    a", {"b"}),
    ],
)
def test_a_block_is_missing_the_names_that_it_reads_first(code: str, names: set[str]) -> None:
    assert missing(ast.parse(code)) - set(bound(ast.parse(code))) == names - set(bound(ast.parse(code)))


def test_a_block_sees_names_of_the_setting_and_earlier_blocks() -> None:
    given = {"engine": "page_setting", "request": "page_setting"}
    _, fragment, last = modules("docs/page.md", read_blocks(PAGE), given)
    heads = [line.partition("  #")[0] for line in fragment.code.splitlines()[:2]]
    assert heads == ["from page_setting import engine", "from page_setting import request"]
    assert last.code.startswith("from page_docs_page_1 import reply")


def test_a_report_names_the_line_of_the_page() -> None:
    given = {"engine": "page_setting", "request": "page_setting"}
    _, fragment, _ = modules("docs/page.md", read_blocks(PAGE), given)
    line = fragment.code.splitlines().index("reply = await engine.request(request)") + 1
    assert PAGE.splitlines()[line + fragment.shift - 1] == "reply = await engine.request(request)"


def test_every_python_block_becomes_a_module() -> None:
    made = every_module()
    assert len(made) > 80
    assert len({module.name for module in made}) == len(made)
