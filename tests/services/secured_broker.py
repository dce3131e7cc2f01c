"""A broker that asks who is there: one process, a listener for every way to answer.

``source_uri("sasl_tls", topic, trusted + login("PLAIN"))`` is how a changefeed reaches it.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from tests.services.broker_settings import PLAIN_JAAS, SASL_PASSWORD, SASL_USER, Listener
from tests.services.certificates import Authority, Files
from tests.services.kafka_broker import KafkaBroker

SCRAM_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH_JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";'
)
_SASL = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "plain.sasl.jaas.config": PLAIN_JAAS,
    "scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
    "scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
}
_OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "oauthbearer.sasl.jaas.config": OAUTH_JAAS,
    "oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security."
    "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
}


class SecuredBroker(KafkaBroker):
    """Listeners: ``tls``, ``mtls`` (wants a certificate of ours), ``sasl``, ``sasl_tls`` (PLAIN and
    SCRAM), ``oauth`` (takes unsigned tokens), ``expired`` and ``elsewhere`` (TLS with a certificate
    that has expired, or is another host's); ``plaintext`` for those who make topics.
    """

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="tidelake-certificates-")
        folder = Path(self._made.name)
        authority = Authority(folder, "authority")
        self.ca = authority.ca
        self.foreign_ca = Authority(folder, "foreign").ca
        self.client = Authority(folder, "below", authority).issue("client")
        self.foreign_client = Authority(folder, "strange").issue("stranger")
        own = _tls(authority.issue("broker"))
        trust = {
            "ssl.client.auth": "required",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        past = authority.issue("expired", good_for=-timedelta(days=1))
        other = authority.issue("elsewhere", host="elsewhere.example")
        password = f"password={SASL_PASSWORD}]"
        super().__init__(
            heap="384m",
            listeners=(
                Listener("tls", "SSL", own),
                Listener("mtls", "SSL", own | trust),
                Listener("sasl", "SASL_PLAINTEXT", _SASL),
                Listener("sasl_tls", "SASL_SSL", own | _SASL),
                Listener("oauth", "SASL_PLAINTEXT", _OAUTH),
                Listener("expired", "SSL", _tls(past)),
                Listener("elsewhere", "SSL", _tls(other)),
            ),
            settings={"num.network.threads": "1"},
            scram=[f"SCRAM-SHA-{n}=[name={SASL_USER},{password}" for n in (256, 512)],
        )

    def stop(self) -> None:
        super().stop()
        self._made.cleanup()

    @property
    def trusted(self) -> str:
        """TLS with the right CA."""
        return f"&enable-tls=true&ca={quote(str(self.ca))}"

    @property
    def with_certificate(self) -> str:
        """Mutual TLS; the client's certificate has a chain."""
        return f"{self.trusted}&cert={self.client.cert}&key={self.client.key}"

    @staticmethod
    def login(mechanism: str, *, user: str = SASL_USER, password: str = SASL_PASSWORD) -> str:
        """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
        return f"&sasl-mechanism={mechanism}&sasl-user={user}&sasl-password={quote(password, '')}"

    def source_uri(self, listener: str, topic: str, parameters: str = "") -> str:
        """``--source-uri``: ``parameters`` are the attributes and ``login`` above, joined."""
        return (
            f"kafka://{self.bootstrap_of(listener)}/{topic}?protocol=canal-json"
            f"&enable-tidb-extension=true{parameters}"
        )


def _tls(files: Files) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files.both)}
