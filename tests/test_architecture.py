"""Rules about the code itself that no linter knows. The import contracts are in pyproject.toml, for scripts/check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import localspec

PACKAGE = Path(localspec.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"

N_LINES_AT_MOST = 500
N_LINES_WITHOUT_A_REASON = 400

# Library: the only place that imports it.
DOORS = {"llama_cpp": "llama", "huggingface_hub": "hub"}

# What a module may not have loaded once it is imported; a slow start is what a user notices first.
DEFERRED = {
    "localspec": ["llama_cpp", "textual", "numpy", "pydantic", "jinja2"],
    "localspec.cli.main": ["llama_cpp", "textual", "jinja2", "huggingface_hub", "fastapi"],
    "localspec.engine.client": ["llama_cpp", "textual"],
    "localspec.engine.requests": ["llama_cpp", "textual"],
    "localspec.models": ["llama_cpp", "textual", "huggingface_hub"],
    "localspec.speculative.step": ["llama_cpp", "textual", "jinja2", "pydantic"],
}


def docstring_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def imports_of(path: Path) -> set[str]:
    """Top-level names of all that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_modules_are_short_or_say_why_not() -> None:
    sizes = {path: path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {path: size for path, size in sizes.items() if size > N_LINES_AT_MOST} == {}
    long = [path for path, size in sizes.items() if size > N_LINES_WITHOUT_A_REASON]
    assert [path for path in long if "lines" not in docstring_of(path)] == [], (
        "the docstring has to say why so many lines"
    )


def test_modules_are_named_after_their_idea() -> None:
    nameless = {"utils", "util", "common", "helpers", "helper", "misc"}
    assert [path for path in MODULES if {path.stem.strip("_"), path.parent.name} & nameless] == []


def test_modules_and_packages_say_what_they_are() -> None:
    assert [path for path in MODULES if not docstring_of(path)] == []
    assert [path.parent for path in MODULES if not (path.parent / "__init__.py").exists()] == []


def test_a_library_has_one_door() -> None:
    for library, door in DOORS.items():
        importers = {path.relative_to(PACKAGE).parts[0] for path in MODULES if library in imports_of(path)}
        assert importers <= {door}


@pytest.mark.parametrize("module", DEFERRED)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(each for each in {DEFERRED[module]!r} if each in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


def test_the_public_api_is_complete_and_loaded_on_demand() -> None:
    for name in localspec.__all__:
        assert getattr(localspec, name) is not None
        assert name in dir(localspec)
    with pytest.raises(AttributeError, match="no_such_name"):
        localspec.no_such_name  # noqa: B018


def test_a_public_name_is_the_object_of_its_home() -> None:
    from localspec.engine.requests import GenerateRequest

    assert localspec.GenerateRequest is GenerateRequest


def test_the_version_is_that_of_the_distribution() -> None:
    assert f'\nversion = "{localspec.__version__}"\n' in PYPROJECT.read_text(encoding="utf-8")


def test_every_runtime_dependency_says_why() -> None:
    text = PYPROJECT.read_text(encoding="utf-8")
    (block,) = re.findall(r"^dependencies = \[\n(.*?)^\]", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for line in block.splitlines()]
    unexplained = [
        line for before, line in zip(["", *lines], lines, strict=False) if line.startswith('"') and before[:1] != "#"
    ]
    assert unexplained == []
    assert len([line for line in lines if line.startswith('"')]) >= 10
