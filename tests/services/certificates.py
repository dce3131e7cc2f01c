"""Certificates for one test run, made as it begins: nothing of it is worth keeping.

(``cryptography`` comes with moto, which the tests have for S3.)
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """PEM files: the certificate with its chain, its key, and both in one."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """A CA, or one below another: its certificates carry the chain up to, but without, the root."""

    def __init__(self, folder: Path, name: str, above: Authority | None = None) -> None:
        self._folder = folder
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        signer = above or self
        builder = _builder(self._name, signer._name, self._key.public_key(), _DAY)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = builder.add_extension(constraints, critical=True).sign(signer._key, hashes.SHA256())
        self._chain = "" if above is None else _text(made) + above._chain
        self.ca = folder / f"{name}.ca.pem"
        self.ca.write_text(_text(made))

    def issue(self, name: str, *, host: str = "127.0.0.1", good_for: timedelta = _DAY) -> Files:
        """A certificate for a host, an address or a client; ``good_for`` may have passed."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key.public_key(), good_for)
        alternative = x509.SubjectAlternativeName([_general(host)])
        made = builder.add_extension(alternative, critical=False).sign(self._key, hashes.SHA256())
        chain = _text(made) + self._chain
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
        files = Files(*(self._folder / f"{name}.{each}.pem" for each in ("cert", "key", "both")))
        files.cert.write_text(chain)
        files.key.write_text(secret)
        files.both.write_text(secret + chain)
        return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, good_for: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - 7 * _DAY).not_valid_after(now + good_for)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
