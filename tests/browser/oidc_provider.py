"""A small identity provider on loopback: logs in whoever ``user`` names, without asking. For tests of the login only."""

from __future__ import annotations

import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "trainvitals", "a secret of the client"
KEY_ID = "k1"


class Provider:
    """user: claims of who logs in next. asked: paths that were asked for."""

    def __init__(self) -> None:
        self.user: dict[str, object] = {"email": "ana@example.org", "email_verified": True}
        self.asked: list[str] = []
        self.key = RSAKey.generate_key(2048, parameters={"kid": KEY_ID, "use": "sig", "alg": "RS256"})
        self._nonces: dict[str, str] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def metadata(self) -> dict[str, object]:
        return {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize", "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks", "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"], "scopes_supported": ["openid", "email", "profile"],
        }  # fmt: skip

    def authorized(self, query: dict[str, list[str]]) -> str:
        """Where the browser is sent back to."""
        code = secrets.token_hex(8)
        self._nonces[code] = query.get("nonce", [""])[0]
        return f"{query['redirect_uri'][0]}?{urlencode({'code': code, 'state': query['state'][0]})}"

    def tokens(self, code: str) -> dict[str, object]:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "1",
            "iat": now,
            "exp": now + 600,
            "nonce": self._nonces.pop(code),
            **self.user,
        }
        token = jwt.encode({"alg": "RS256", "kid": KEY_ID}, claims, self.key)
        return {"access_token": "none", "token_type": "Bearer", "expires_in": 600, "id_token": token}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                provider.asked.append(parts.path)
                if parts.path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.authorized(parse_qs(parts.query)))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif parts.path == "/jwks":
                    self._tell({"keys": [provider.key.as_dict(private=False)]})
                else:
                    self._tell(provider.metadata())

            def do_POST(self) -> None:
                provider.asked.append(urlsplit(self.path).path)
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._tell(provider.tokens(form["code"][0]))

            def _tell(self, told: dict[str, object]) -> None:
                body = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)
