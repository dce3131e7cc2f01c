"""Row checksums are asked for by TiCDC's names."""

from __future__ import annotations

from pathlib import Path

from tests.conf.test_load import load

URI = "kafka://h:9092/shop?protocol=simple"


def test_the_section_of_ticdc_sets_them(tmp_path: Path):
    text = '[integrity]\nintegrity-check-level = "correctness"\ncorruption-handle-level = "error"'
    found = load(text, tmp_path=tmp_path, source_uri=URI).changefeed
    assert (found.integrity_check_level, found.corruption_handle_level) == ("correctness", "error")


def test_so_do_keys_of_their_own(tmp_path: Path):
    text = "integrity-check-level = 'correctness'"
    found = load(text, tmp_path=tmp_path, source_uri=URI).changefeed
    assert (found.integrity_check_level, found.corruption_handle_level) == ("correctness", "warn")
