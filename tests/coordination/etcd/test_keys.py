from __future__ import annotations

import json

import pytest

from coordination.errors import ConfigError
from coordination.etcd import keys
from coordination.etcd.keys import ChangefeedName, KeyKind, ParsedKey
from coordination.model import CaptureID, CaptureInfo, ChangefeedID, JobID, LeaseID

INFO = CaptureInfo(
    id=CaptureID("c1"), address="10.0.0.1:8300", version="0.1.0", start_timestamp=1700000000
)
SHOP = ChangefeedName(ChangefeedID("shop"))
OTHER_SHOP = ChangefeedName(ChangefeedID("shop"), "team-a")
C1 = CaptureID("c1")
LEASE = LeaseID(0x694D81417ABCDEF0)

EVERY_KEY = [
    (
        keys.election_prefix("default") + f"{LEASE:x}",
        "/tidb/cdc/default/__cdc_meta__/owner/694d81417abcdef0",
        ParsedKey(KeyKind.ELECTION, lease=LEASE),
    ),
    (
        keys.capture_key("default", C1),
        "/tidb/cdc/default/__cdc_meta__/capture/c1",
        ParsedKey(KeyKind.CAPTURE, capture_id=C1),
    ),
    (
        keys.meta_version_key("default"),
        "/tidb/cdc/default/__cdc_meta__/meta/meta-version",
        None,
    ),
    (
        keys.delete_counter_key("default"),
        "/tidb/cdc/default/__cdc_meta__/meta/ticdc-delete-etcd-key-count",
        None,
    ),
    (
        keys.changefeed_info_key("default", SHOP),
        "/tidb/cdc/default/default/changefeed/info/shop",
        ParsedKey(KeyKind.INFO, SHOP),
    ),
    (
        keys.changefeed_info_key("default", OTHER_SHOP),
        "/tidb/cdc/default/team-a/changefeed/info/shop",
        ParsedKey(KeyKind.INFO, OTHER_SHOP),
    ),
    (
        keys.changefeed_status_key("default", SHOP),
        "/tidb/cdc/default/default/changefeed/status/shop",
        ParsedKey(KeyKind.STATUS, SHOP),
    ),
    (
        keys.task_position_key("default", C1, SHOP),
        "/tidb/cdc/default/default/task/position/c1/shop",
        ParsedKey(KeyKind.POSITION, SHOP, C1),
    ),
    (
        keys.incarnation_key("default"),
        "/tidelake/default/etcd-incarnation",
        None,
    ),
    (keys.epoch_key("default"), "/tidelake/default/changefeed-epoch", None),
    (
        keys.schedule_key("default", OTHER_SHOP),
        "/tidelake/default/team-a/changefeed/schedule/shop",
        ParsedKey(KeyKind.SCHEDULE, OTHER_SHOP),
    ),
]


@pytest.mark.parametrize(("key", "text", "says"), EVERY_KEY)
def test_every_key_lies_where_it_should_and_says_what_it_is(
    key: str, text: str, says: ParsedKey | None
) -> None:
    assert key == text
    assert keys.parse_key("default", key) == says


@pytest.mark.parametrize(("key", "_text", "_says"), EVERY_KEY)
def test_a_key_of_a_cluster_is_not_one_of_a_cluster_whose_name_begins_alike(
    key: str, _text: str, _says: ParsedKey | None
) -> None:
    """TiCDC tests the start of the key without a slash: default takes default2's keys."""
    assert keys.parse_key("defaul", key) is None
    assert keys.parse_key("default2", key) is None
    other = key.replace("/default/", "/default2/", 1)
    assert keys.parse_key("default", other) is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/tidb/cdc/default",
        "/tidb/cdc/default/",
        "/tidb/cdc/default/__cdc_meta__",
        "/tidb/cdc/default/__cdc_meta__/capture",
        "/tidb/cdc/default/__cdc_meta__/capture/",
        "/tidb/cdc/default/__cdc_meta__/capture/c1/more",
        "/tidb/cdc/default/__cdc_meta__/owner",
        "/tidb/cdc/default/__cdc_meta__/owner/",
        "/tidb/cdc/default/__cdc_meta__/owner/xyz",
        "/tidb/cdc/default/__cdc_meta__/meta/other",
        "/tidb/cdc/default/default/changefeed/info",
        "/tidb/cdc/default/default/changefeed/info/",
        "/tidb/cdc/default/default/changefeed/info/a/b",
        "/tidb/cdc/default/default/changefeed/info/-a",
        "/tidb/cdc/default/default/changefeed/info/" + "a" * 129,
        "/tidb/cdc/default/default/changefeed/other/a",
        "/tidb/cdc/default//changefeed/info/a",
        "/tidb/cdc/default/default/task/position/c1",
        "/tidb/cdc/default/default/task/position//shop",
        "/tidb/cdc/default/default/task/position/c1/shop/more",
        "/tidb/cdc/default/default/upstream/",
        "/tidb/cdc/default/default/upstream/-1",
        "/tidb/cdc/default/default/upstream/²",
        "/tidb/cdc/__backup__/1/tidb/cdc/default/owner",
        "/tidb/cdc/capture/c1",
        "/tidelake/default/",
        "/tidelake/default/default/owner/shop/694d81417abcdef0",
        "/tidelake/default/default/changefeed/schedule",
    ],
)
def test_what_is_no_key_of_ours_says_nothing(key: str) -> None:
    """TiCDC slices short keys out of range, and takes a slash into a changefeed's ID."""
    assert keys.parse_key("default", key) is None


RUN = keys.run_scope("default", ChangefeedID("shop"))


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        (
            keys.capture_key(RUN, C1),
            "/tidelake/default/run-shop/cdc/__cdc_meta__/capture/c1",
            ParsedKey(KeyKind.CAPTURE, capture_id=C1),
        ),
        (
            keys.changefeed_info_key(RUN, SHOP),
            "/tidelake/default/run-shop/cdc/default/changefeed/info/shop",
            ParsedKey(KeyKind.INFO, SHOP),
        ),
        (
            keys.schedule_key(RUN, SHOP),
            "/tidelake/default/run-shop/own/default/changefeed/schedule/shop",
            ParsedKey(KeyKind.SCHEDULE, SHOP),
        ),
        (keys.epoch_key(RUN), "/tidelake/default/run-shop/own/changefeed-epoch", None),
    ],
)
def test_the_scope_of_a_run_has_keys_of_its_own_that_say_nothing_to_the_cluster(
    key: str, text: str, says: ParsedKey | None
) -> None:
    assert key == text
    assert keys.parse_key(RUN, key) == says
    assert keys.parse_key("default", key) is None
    assert not key.startswith(keys.base_prefix("default"))  # TiCDC's tools would refuse it


def test_a_scope_is_in_the_same_etcd_as_its_cluster() -> None:
    assert keys.incarnation_key(RUN) == keys.incarnation_key("default")


def test_one_changefeed_is_no_prefix_of_another() -> None:
    other = keys.run_scope("default", ChangefeedID("shop-2"))
    assert not keys.own_prefix(other).startswith(keys.own_prefix(RUN))


@pytest.mark.parametrize("cluster_id", ["default", "a", "a-b-1", "a" * 128])
def test_cluster_ids_that_ticdc_takes(cluster_id: str) -> None:
    keys.check_cluster_id(cluster_id)


@pytest.mark.parametrize(
    "cluster_id",
    ["", "a/b", "a_b", "-a", "a--b", "a\n", "a" * 129, *sorted(keys.RESERVED_CLUSTER_IDS)],
)
def test_cluster_ids_that_ticdc_refuses(cluster_id: str) -> None:
    with pytest.raises(ConfigError, match="cluster-id"):
        keys.check_cluster_id(cluster_id)


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


def test_a_job_lies_under_our_own_root_and_is_read_back() -> None:
    job_id = JobID("copy")
    assert keys.job_key("c", job_id) == "/tidelake/c/data-flow/dm/job/copy"
    assert keys.unit_state_key("c", job_id) == "/tidelake/c/data-flow/dm/unit-state/copy"
    for key in (keys.job_key("c", job_id), keys.unit_state_key("c", job_id)):
        assert keys.job_of_key("c", key) == job_id
        assert keys.parse_key("c", key) is None


@pytest.mark.parametrize(
    "key",
    [
        "/tidelake/c2/data-flow/dm/job/copy",
        "/tidelake/c/data-flow/dm/job/",
        "/tidelake/c/data-flow/dm/job/a/b",
        "/tidelake/c/data-flow/dm/job/a b",
        "/tidelake/c/data-flow/dm/info/copy",
        "/tidelake/c/run-x/own/data-flow/dm/job/copy",
        "job/copy",
        "/tidb/cdc/c/default/changefeed/info/copy",
    ],
)
def test_a_key_that_is_no_jobs_is_none(key: str) -> None:
    assert keys.job_of_key("c", key) is None
