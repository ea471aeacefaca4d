"""Certificates for loopback, made when they are needed: an authority, and what it signs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    """Signs certificates.

    Args:
        folder: Takes `NAME.pem`, its own certificate, and what it signs.
        name: Its name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        is_authority = x509.BasicConstraints(ca=True, path_length=None)
        own = _builder(self._name, self._name, self._key).add_extension(is_authority, critical=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def server(self) -> Path:
        """Make a server's key and certificate, in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        certificate = _builder(_named("127.0.0.1"), self._name, key).add_extension(address, critical=False)
        form = serialization.PrivateFormat.PKCS8
        key_pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        path = self._folder / "server.pem"
        path.write_bytes(key_pem + _pem(certificate.sign(self._key, hashes.SHA256())))
        return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - DAY).not_valid_after(now + DAY)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
