"""Certificates, a free port, and an environment without proxies, for the tests of the upstreams."""

import socket
import ssl

import pytest
import trustme


@pytest.fixture(autouse=True)
def _no_proxy_in_environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def certificates():
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(certificates, tmp_path_factory):
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    certificates.cert_pem.write_to_path(str(path))
    return path


@pytest.fixture
def tls(certificates):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificates.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def unused_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
