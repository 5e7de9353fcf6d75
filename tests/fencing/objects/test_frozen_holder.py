"""A holder frozen past its lease writes to S3 when it wakes up: without the fence an update is lost."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

import holdfast
from holdfast.fencing import ObjectFence
from tests.fencing.frozen import late_write
from tests.servers.moto import MotoServer

_CONNECT = """
import obstore
from obstore.store import S3Store
store = S3Store(
    sys.argv[3], endpoint=sys.argv[2], access_key_id="test", secret_access_key="test", region="us-east-1",
    virtual_hosted_style_request=False, client_options={"allow_http": True},
)
from holdfast.fencing import ObjectFence
fence = ObjectFence(store)
"""
_FENCED = (
    _CONNECT + "value = int(fence.load('balance', lease))",
    "fence.store('balance', b'%d' % (value + 10), lease)",
)
_PLAIN = (
    _CONNECT + "value = int(bytes(obstore.get(store, 'balance').bytes()))",
    "obstore.put(store, 'balance', b'%d' % (value + 10))",
)
# If-Match alone does not suffice: the new holder wrote equal bytes, so the ETag is equal and the late write passes.
_ETAG = (
    _CONNECT + "seen = obstore.get(store, 'balance')\nvalue = int(bytes(seen.bytes()))",
    "obstore.put(store, 'balance', b'%d' % (value + 10), mode={'e_tag': seen.meta['e_tag']})",
)


def _plain(store: S3Store) -> int:
    return int(bytes(obstore.get(store, "balance").bytes()))


def test_late_write_is_refused(s3_server: MotoServer, tmp_path: Path) -> None:
    store, bucket = s3_server.bucket()
    fence = ObjectFence(store)
    fence.check("balance", 1)
    fence.store("balance", b"100", 1)

    def deposit_5(lease: holdfast.Lease) -> None:
        fence.store("balance", b"%d" % (int(fence.load("balance", lease) or 0) + 5), lease)

    assert late_write(tmp_path, *_FENCED, s3_server.url, bucket, meanwhile=deposit_5) == "refused"
    assert fence.read("balance") == b"105"


@pytest.mark.parametrize("holder, deposit, left", [(_PLAIN, 5, 110), (_ETAG, 0, 110)], ids=["plain", "if-match"])
def test_late_write_without_the_fence_passes(
    holder: tuple[str, str], deposit: int, left: int, s3_server: MotoServer, tmp_path: Path
) -> None:
    """With ``deposit`` 0 the new holder has confirmed that the balance is 100 and acts on it."""
    store, bucket = s3_server.bucket()
    obstore.put(store, "balance", b"100")

    def update(lease: holdfast.Lease) -> None:
        obstore.put(store, "balance", b"%d" % (_plain(store) + deposit))

    assert late_write(tmp_path, *holder, s3_server.url, bucket, meanwhile=update) == "wrote"
    assert _plain(store) == left, "the late write should have replaced the value of the newer holder"
