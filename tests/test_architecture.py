"""The layers of the package: a row imports from the rows below it, never from above or beside."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tokenselect"

ROWS: list[set[str]] = [
    {"extras", "locking", "threads"},
    {"ops", "data"},
    {"grid", "plan"},
    {"selectors", "backbones"},
    {"adapters"},
    {"insertion", "weights"},
    {"models", "measure"},
    {"checkpoints", "visualization"},
    {"training", "inference", "export"},
    {"comparison"},
    {"web"},
    {""},  # the public names
    {"cli"},
    {"__main__", "bulk", "evaluation", "prediction", "pretrained", "profiling"},  # of 0.1: moved
]
ROW_OF = {unit: row for row, units in enumerate(ROWS) for unit in units}
FORBIDDEN = {"torchvision", "timm", "transformers", "pytorchvideo"}  # hosts, never dependencies
MAX_LINES = 400  # of a file: one whole idea
TWICE = {"Block", "from_torchvision", "logger"}  # names that mean the same in every file
MAX_FILES, MAX_TOTAL = 190, 22_500


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


def test_imports_go_down_only():
    without_row = {unit_of(path) for path in sources()} - ROW_OF.keys()
    assert not without_row, f"{without_row} have no row in the table of layers"
    found = {
        str(path.relative_to(PACKAGE)): breaches(
            unit_of(path), imported_modules(ast.parse(path.read_text()))
        )
        for path in sources()
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_a_breach_is_found():
    assert breaches("selectors", {"tokenselect.backbones.mvit"}) == ["tokenselect.backbones.mvit"]
    assert breaches("ops", {"tokenselect.grid.TokenGrid"}) == ["tokenselect.grid.TokenGrid"]
    assert breaches("adapters", {"torchvision.models"}) == ["torchvision.models"]
    assert breaches("models", {"tokenselect.insertion.insert", "torch"}) == []


def test_no_file_is_long():
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in sources()
    }
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_the_package_stays_small():
    lengths = [len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")]
    assert len(lengths) <= MAX_FILES
    assert sum(lengths) <= MAX_TOTAL


def defined_names(tree: ast.Module) -> set[str]:
    """List the public functions, classes and values that a file defines at its top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for target in targets for n in ast.walk(target) if hasattr(n, "id")}
    return {name for name in names if not name.startswith("_")}


def test_a_name_means_one_thing_in_the_whole_package():
    places: dict[str, list[str]] = {}
    for path in sources():
        for name in defined_names(ast.parse(path.read_text())):
            places.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in TWICE} == {}
    assert twice.keys() >= TWICE
