"""Values that nobody writes on purpose: each is refused in one line, never by a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.load import load_settings
from conf.problems import SettingError

URI = "kafka://h:1/shop?protocol=canal-json&enable-tidb-extension=true"
OAUTH = "&sasl-mechanism=OAUTHBEARER&sasl-oauth-client-id=i&sasl-oauth-client-secret=cw%3D%3D"
MANY = "1" * 5000  # more digits than Python makes a number of


def refused(uri: str = URI, config: Path | None = None) -> str:
    with pytest.raises(SettingError) as raised:
        load_settings(
            config=config,
            environment={},
            arguments={"source-uri": uri, "sink-uri": "delta:///lake"},
        )
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"start-ts = {MANY}", "not TOML: Exceeds the limit"),
        (f"a = {'[' * 5000}", "not TOML: it is nested too deeply"),
        ('schema-file = "a\\u0000b"', r"'a\x00b' cannot be read"),
        ("capture-session-ttl = 9999999999999", "capture-session-ttl must be 9000000000 or less"),
        ("snapshot-retention-h = 99999999999", "snapshot-retention-h must be 878400 or less"),
        ("first-batch-messages = -1", "first-batch-messages must be 0 or more"),
        ("carry-warn-rows = -1", "carry-warn-rows must be 0 or more"),
        ("quiet-s = -1", "quiet-s must be 0 or more"),
        ("quiet-s = nan", "quiet-s must be 0 or more"),
    ],
)
def test_in_a_file(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text(text)
    assert says in refused(config=file)


def test_a_target_of_0_is_none_as_in_ticdc() -> None:
    arguments = {"source-uri": URI, "sink-uri": "delta:///lake", "target-ts": 0}
    settings = load_settings(config=None, environment={}, arguments=arguments)
    assert settings.changefeed.target_ts is None


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (f"&partition-num={MANY}", "must be above 0"),
        (f"&max-message-bytes={MANY}", "must be bytes"),
        (f"{OAUTH}&sasl-oauth-token-url=http://[x", "sasl-oauth-token-url must be a URL"),
        (f"{OAUTH}&sasl-oauth-token-url=https:", "sasl-oauth-token-url must be a URL"),
    ],
)
def test_in_the_source_uri(parameters: str, says: str) -> None:
    assert says in refused(URI + parameters)
