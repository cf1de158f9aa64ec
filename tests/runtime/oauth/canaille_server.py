"""A second real provider of tokens, for tests: Canaille, in an environment of its own.

    python canaille_server.py CERTIFICATE KEY PORT_OF_THE_REDIRECT

It listens on a free port of 127.0.0.1, prints {"port": N}, and ends when its input does. It has one user and
three clients, and takes redirects to the one address only that they registered. Its access tokens are random, since
those that it makes itself are the same for the same second.
"""

from __future__ import annotations

import datetime
import json
import secrets
import socket
import sys
import threading

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from canaille.oidc import provider
from joserfc.jwk import JWKRegistry
from werkzeug.serving import WSGIRequestHandler, make_server


class Silent(WSGIRequestHandler):
    """Its log would be taken for what it says."""

    def log(self, type: str, message: str, *args: object) -> None:
        pass


def configuration(port: int) -> dict[str, object]:
    key = JWKRegistry.generate_key("RSA", 2048)
    key.ensure_kid()
    return {
        "ENV_FILE": None,
        "SECRET_KEY": secrets.token_hex(32),
        "SERVER_NAME": f"localhost:{port}",
        "PREFERRED_URL_SCHEME": "https",
        "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "ACL": {"DEFAULT": {"PERMISSIONS": ["use_oidc"]}}},
        "CANAILLE_OIDC": {"REQUIRE_NONCE": False, "ACTIVE_JWKS": [key.as_dict(private=True)], "TRUSTED_DOMAINS": []},
    }


def fill(redirect_port: int) -> None:
    user = models.User(formatted_name="Somebody", family_name="Body", user_name="somebody", emails=["s@example.com"])
    user.password = "correct horse"
    Backend.instance.save(user)
    for name, way in (("public", "none"), ("robbed", "none"), ("confidential", "client_secret_basic")):
        client = models.Client(
            client_id=name,
            client_secret="a-secret-of-the-client",
            client_name=name,
            client_id_issued_at=datetime.datetime.now(datetime.UTC),
            redirect_uris=[f"http://127.0.0.1:{redirect_port}/callback"],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=["openid", "profile", "email"],
            token_endpoint_auth_method=way,
        )
        Backend.instance.save(client)


def main() -> None:
    certificate, key, redirect_port = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    provider.generate_access_token = lambda *_, **__: secrets.token_urlsafe(32)
    app = create_app(config=configuration(port))
    with app.app_context():
        fill(int(redirect_port))
    server = make_server(
        "127.0.0.1", port, app, threaded=True, request_handler=Silent, ssl_context=(certificate, key),
        fd=listening.fileno(),
    )  # fmt: skip
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{json.dumps({'port': port})}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
