from __future__ import annotations

import json

from coordination.etcd import keys
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, LeaseID

INFO = CaptureInfo(
    id=CaptureID("c1"), address="10.0.0.1:8300", version="0.1.0", start_timestamp=1700000000
)


def test_a_capture_lies_where_ticdc_has_it() -> None:
    assert (
        keys.capture_key("default", CaptureID("c1")) == "/tidb/cdc/default/__cdc_meta__/capture/c1"
    )


def test_an_election_key_is_the_lease_in_hex() -> None:
    key = keys.owner_key("default", ChangefeedID("shop"), LeaseID(0x694D81417ABCDEF0))
    assert key == "/tidelake/default/default/owner/shop/694d81417abcdef0"


def test_one_changefeed_is_no_prefix_of_another() -> None:
    other = keys.owner_key("default", ChangefeedID("shop-2"), LeaseID(1))
    assert not other.startswith(keys.owner_prefix("default", ChangefeedID("shop")))


def test_capture_info_has_ticdcs_field_names_and_comes_back() -> None:
    value = keys.dump_capture_info(INFO)
    assert list(json.loads(value)) == [
        "id",
        "address",
        "version",
        "git-hash",
        "deploy-path",
        "start-timestamp",
    ]
    assert keys.load_capture_info(value) == INFO


def test_an_old_capture_info_without_a_start_time_is_read() -> None:
    old = keys.load_capture_info(b'{"id":"c1","address":"a","version":"v5.0.0","more":1}')
    assert old.start_timestamp == 0
