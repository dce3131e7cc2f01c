"""The program for ``spark-submit --properties-file conf/spark.conf streaming/job.py run …``.

It checks the import path before it imports anything of ours: PyPI has another package named
``streaming`` (mosaicml-streaming), and ``conf`` is a common name. The one that comes first on the
path would be imported, and would fail much later with a message that explains nothing.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# A file of each of our packages that no other package of that name has.
MARKERS = {
    "conf": "sources/source_uri.py",
    "coordination": "failpoint.py",
    "sinks": "target/engine_port.py",
    "streaming": "protocols/contract.py",
}


def prepare_path() -> None:
    """Put the repository's root on the path in place of this folder, which spark-submit puts
    there."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    if (here / MARKERS["streaming"]).exists():
        sys.path.insert(0, str(here.parent))


def shadowed() -> str | None:
    """The error about a package whose name would import something that is not ours; None if all
    are ours."""
    for name, marker in MARKERS.items():
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # sys.modules has a module of this name without a spec
            spec = None
        found = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
        if not any((folder / marker).is_file() for folder in found):
            where = f"the one in {found[0]} comes first" if found else "none is on the path"
            return f"tidelake: package {name!r} is not Tidelake's: {where}; {_advice(name)}"
        init = found[0] / "__init__.py"
        if init.is_file() and _is_foreign(init):
            return f"tidelake: another package wrote over {init}; {_advice(name)}"
    return None


def _is_foreign(init: Path) -> bool:
    """Whether another distribution wrote this ``__init__.py``: ours are empty or have only a
    docstring, so one with imports is not ours."""
    lines = init.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.startswith(("import ", "from ")) for line in lines)


def _advice(name: str) -> str:
    culprit = " (mosaicml-streaming has one of that name)" if name == "streaming" else ""
    return f"install Tidelake where no other package is called {name!r}{culprit}"


def main() -> None:
    prepare_path()
    line = shadowed()
    if line is not None:
        print(line, file=sys.stderr)
        sys.exit(2)
    from streaming.cli.main import main as run_program  # after the check

    run_program()


if __name__ == "__main__":
    main()
