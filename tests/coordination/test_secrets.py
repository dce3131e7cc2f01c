"""References, at the moment of their use."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf import masking
from conf.masking import masked
from coordination.errors import ConfigError
from coordination.secrets import MAX_BYTES, revealed, revealed_options


@pytest.fixture(autouse=True)
def _nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_hidden", set())


def test_a_plain_value_is_itself_and_is_masked_from_now_on() -> None:
    assert revealed("sasl-password", "marked-secret") == "marked-secret"
    assert masked("it was marked-secret") == "it was ***"
    assert revealed("sasl-user", "tidelake") == "tidelake"
    assert masked("tidelake") == "tidelake"


def test_a_variable_and_a_file_are_read_at_each_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    for value in ("first-value", "other-value"):
        monkeypatch.setenv("SHOP_PASSWORD", value)
        file.write_text(f"{value}\n")
        assert revealed("sasl-password", "${env:SHOP_PASSWORD}") == value
        options = {"aws_secret_access_key": f"${{file:{file}}}", "region": "here"}
        assert revealed_options(options) == {"aws_secret_access_key": value, "region": "here"}
        assert masked(f"x {value}") == "x ***"


def test_what_cannot_be_read_here_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    empty, large = tmp_path / "empty", tmp_path / "large"
    empty.write_text("\n")
    large.write_bytes(b"x" * (MAX_BYTES + 1))
    for text, says in (
        ("${env:SHOP_PASSWORD}", "sasl-password: the variable SHOP_PASSWORD of .* is not set"),
        (f"${{file:{tmp_path}/none}}", "cannot be read here: No such file"),
        (f"${{file:{empty}}}", "is empty"),
        (f"${{file:{large}}}", "is too large"),
        ("${vault:x}", "is not known"),
    ):
        with pytest.raises(ConfigError, match=says):
            revealed("sasl-password", text)
