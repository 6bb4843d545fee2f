"""The layers of the package: a row imports from the rows below it, never from above or beside."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "tokenselect"

ROWS: list[set[str]] = [
    {"ops", "data", "profiling", "inference"},
    {"grid", "plan", "evaluation"},
    {"selectors", "backbones"},
    {"adapters", "visualization"},
    {"insertion", "weights"},
    {"models"},
    {"pretrained"},
    {"training", "export", "prediction"},
    {"bulk", "comparison"},
    {"web"},
    {"cli"},
    {"__main__"},
]
ROW_OF = {unit: row for row, units in enumerate(ROWS) for unit in units}
FORBIDDEN = {"torchvision", "timm", "transformers", "pytorchvideo"}  # hosts, never dependencies
MAX_LINES = 250


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def unit_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import at line {node.lineno}"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def breaches(unit: str, modules: set[str]) -> list[str]:
    """List the modules that `unit` may not import."""
    found = []
    for module in sorted(modules):
        root, _, rest = module.partition(".")
        if root in FORBIDDEN:
            found.append(module)
        if root == "tokenselect":
            other = rest.partition(".")[0]
            is_inside = other == unit
            if not is_inside and (other not in ROW_OF or ROW_OF[other] >= ROW_OF[unit]):
                found.append(module)
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path: Path):
    unit = unit_of(path)
    assert unit in ROW_OF, f"{unit} has no row in the table of layers"
    assert breaches(unit, imported_modules(ast.parse(path.read_text()))) == []


def test_a_breach_is_found():
    assert breaches("selectors", {"tokenselect.backbones.mvit"}) == ["tokenselect.backbones.mvit"]
    assert breaches("ops", {"tokenselect.grid.TokenGrid"}) == ["tokenselect.grid.TokenGrid"]
    assert breaches("adapters", {"torchvision.models"}) == ["torchvision.models"]
    assert breaches("models", {"tokenselect.insertion.insert", "torch"}) == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short(path: Path):
    assert len(path.read_text().splitlines()) <= MAX_LINES
