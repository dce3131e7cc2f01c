"""Which services all workers of a run share, and what of them pytest's hooks see to.

A test that needs a service which has ended during the run fails at once, with its name; so does a
test that was under way name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.services.run_services import (
    BorrowedServices,
    Kind,
    OwnedServices,
    ServiceGone,
    Services,
)

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

_SERVICES = pytest.StashKey[Services]()
_USED = pytest.StashKey[set[str]]()  # by this process
_LENT = "tidelake_services"  # in what xdist gives to a worker


def _broker() -> Any:
    from tests.services.kafka_broker import KafkaBroker

    return KafkaBroker()


def _secured_broker() -> Any:
    from tests.services.secured_broker import SecuredBroker

    return SecuredBroker()


def _etcd() -> Any:
    from coordination.etcd.embedded import EmbeddedEtcd

    return EmbeddedEtcd()


def _s3() -> Any:
    from tests.services.s3_server import S3Server

    return S3Server()


KINDS = {
    "broker": Kind(_broker, lambda running: running.log_tail()),
    "secured_broker": Kind(_secured_broker, lambda running: running.log_tail()),
    "etcd": Kind(_etcd, lambda running: running._last_words()),
    "s3": Kind(_s3),
}


def open_services(config: pytest.Config) -> None:
    lent = getattr(config, "workerinput", {}).get(_LENT)
    config.stash[_SERVICES] = OwnedServices(KINDS) if lent is None else BorrowedServices(lent)
    config.stash[_USED] = set()


def lend_services(node: WorkerController) -> None:
    services = node.config.stash[_SERVICES]
    assert isinstance(services, OwnedServices)
    node.workerinput[_LENT] = services.address()


def close_services(config: pytest.Config) -> None:
    if _SERVICES in config.stash:
        config.stash[_SERVICES].close()


def shared(config: pytest.Config, name: str) -> Any:
    """A copy of the service."""
    try:
        found = config.stash[_SERVICES].ask(name)
    except ServiceGone as why:
        pytest.fail(str(why), pytrace=False)
    config.stash[_USED].add(name)
    return found


def need_services(item: pytest.Item) -> None:
    names = set(getattr(item, "fixturenames", ())) & item.config.stash[_USED]
    if gone := _gone(item.config, names):
        pytest.fail("\n".join(gone), pytrace=False)


def name_the_gone(config: pytest.Config, report: pytest.TestReport) -> None:
    if gone := _gone(config, config.stash[_USED]):
        report.sections.append(("services of the run", "\n".join(gone)))


def _gone(config: pytest.Config, names: set[str]) -> list[str]:
    services = config.stash[_SERVICES]
    return [why for name in sorted(names) if (why := services.ended(name)) is not None]
