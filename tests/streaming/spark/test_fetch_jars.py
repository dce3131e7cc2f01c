"""Jars for a wheel: from a Maven repository, which is a folder here."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.cli.main import app
from streaming.spark.spark_conf import PACKAGES

GROUP, ARTIFACT, VERSION = PACKAGES[0].split(":")
POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>{GROUP}</groupId><artifactId>{ARTIFACT}</artifactId><version>{VERSION}</version></project>
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A mirror that has Delta, of which nothing else is needed."""
    base = tmp_path / "mirror"
    place = base / GROUP.replace(".", "/") / ARTIFACT / VERSION
    place.mkdir(parents=True)
    (place / f"{ARTIFACT}-{VERSION}.pom").write_text(POM, encoding="utf-8")
    (place / f"{ARTIFACT}-{VERSION}.jar").write_bytes(b"a jar")
    return base


def jars(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        app(args=["jars", *map(str, arguments)], prog_name="tidelake")
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_jars_come_from_a_mirror(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = tmp_path / "new" / "jars"
    assert jars(folder, "--repository", repository.as_uri()) == 0
    assert [each.name for each in folder.iterdir()] == [f"{ARTIFACT}-{VERSION}.jar"]
    assert f"now: export TIDELAKE_JARS={folder}" in capsys.readouterr().out
    assert jars(folder, "--repository", repository.as_uri()) == 2
    assert "holds jars already" in capsys.readouterr().err


def test_ivys_settings_say_where_they_come_from(repository: Path, tmp_path: Path):
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers><ibiblio name="m" '
        f'm2compatible="true" root="{repository.as_uri()}/"/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    assert jars(tmp_path / "jars", "--ivy-settings", settings) == 0
    assert len(list((tmp_path / "jars").glob("*.jar"))) == 1


def test_a_mirror_without_them_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert jars(tmp_path / "jars", "--repository", empty.as_uri()) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--repository" in said
    assert ARTIFACT in said
    assert list((tmp_path / "jars").iterdir()) == []
