"""What librdkafka says of a connection, in words that say what to do."""

import pytest

from conf.sources.source_uri import parse_source_uri
from streaming.source.kafka.connection_errors import in_words

SOURCE = parse_source_uri("kafka://127.0.0.1:9092/t?protocol=canal-json&enable-tidb-extension=true")


@pytest.mark.parametrize("text", ["Send failed: Broken pipe", "Receive failed: Connection reset"])
def test_who_hangs_up_may_want_tls_or_a_login(text: str):
    assert "Check the port, enable-tls and sasl-mechanism" in in_words(
        "_TRANSPORT", text, SOURCE.security
    )


def test_who_is_not_there_is_at_another_address():
    said = in_words("_TRANSPORT", "Connect to 127.0.0.1:9 failed: refused", SOURCE.security)
    assert said.endswith("Check the address")
