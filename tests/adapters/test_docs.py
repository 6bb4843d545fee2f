import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_the_code_of_the_page_on_adapters_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {"__name__": "docs"})
