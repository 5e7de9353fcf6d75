"""An S3 server for tests: moto's, in a process of its own, on a free port of 127.0.0.1."""

from __future__ import annotations

import http.client
import sys
import uuid
from contextlib import closing
from typing import ClassVar, Final

from obstore.store import S3Store

from tests.servers.process import ServerProcess

# moto reads only the region from it.
_SIGNED: Final = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


class MotoServer(ServerProcess):
    """``bucket()`` creates a new, empty bucket and returns a store for it."""

    program: ClassVar[str] = "moto"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bucket(self) -> tuple[S3Store, str]:
        """A store for a new bucket, and the bucket's name."""
        name = f"bucket-{uuid.uuid4().hex}"
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request("PUT", f"/{name}", headers={"Authorization": _SIGNED, "Content-Length": "0"})
            assert connection.getresponse().status == 200
        return store_of(self.url, name), name

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", self.host, "-p", str(self.port)]

    def _answers(self) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)) as connection:
            try:
                connection.request("GET", "/moto-api/")
                return connection.getresponse().status == 200
            except OSError:
                return False


def store_of(url: str, bucket: str) -> S3Store:
    """obstore's store for a bucket of the server at ``url``. It does not retry requests, so a test sees each error."""
    return S3Store(
        bucket,
        endpoint=url,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
