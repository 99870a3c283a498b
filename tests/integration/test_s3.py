"""Large values in S3: a real client, against a server of its own that speaks the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from aiobotocore.session import get_session
from temporalio.worker import Worker

from openwop_mcp.config import Settings
from openwop_mcp.storage import Bucket, LostValueError, StorageError, _s3, data_converter, resolve
from tests.integration.test_large_values import Setting, answering, call, completed, size_of, sized, stored
from tests.support.author_flows import Author, Call
from tests.support.fake_server import FakeServer
from tests.support.graphs import workflow
from tests.support.pack import chain, pack_worker, settings_for

DATA = b'{"text":"x"}'
DIGEST = hashlib.sha256(DATA).hexdigest()
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Of a server that is not there, once is enough.
    "AWS_MAX_ATTEMPTS": "1",
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert server.stderr is not None
    with pytest.MonkeyPatch.context() as patch, server:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        try:
            yield next(found[1] for line in server.stderr if (found := re.search(r"Running on (http://\S+)", line)))
        finally:
            server.kill()


@contextlib.asynccontextmanager
async def s3(endpoint: str) -> AsyncIterator[Any]:
    async with get_session().create_client("s3", endpoint_url=endpoint) as client:
        yield client


@pytest.fixture
async def bucket(endpoint) -> str:
    name = f"b-{uuid.uuid4().hex}"
    async with s3(endpoint) as client:
        await client.create_bucket(Bucket=name)
    return name


async def keys(endpoint: str, bucket: str) -> list[str]:
    async with s3(endpoint) as client:
        return [found["Key"] for found in (await client.list_objects_v2(Bucket=bucket)).get("Contents", [])]


def s3_settings(endpoint: str, bucket: str, url: str = "http://127.0.0.1:9/mcp", **storage: Any) -> Settings:
    return settings_for(url, storage={"driver": "s3", "bucket": bucket, "endpoint": endpoint, **storage})


async def test_a_result_of_20_mb_comes_back_identical_from_a_bucket_through_run_and_authors_workflow(
    client, endpoint, bucket
):
    result = sized(20_000_000)
    digest = hashlib.sha256(result).hexdigest()
    async with FakeServer(answering(result)) as server:
        settings = s3_settings(endpoint, bucket, server.url, prefix="blobs/")
        own = stored(client, settings)
        async with (
            pack_worker(own, settings) as pack,
            Worker(own, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
        ):
            handle = await pack.start(workflow([call("a")]))
            log, _ = await pack.end(handle)
            assert completed(log, "a") == result
            at = Setting(pack, server, folder=None)
            assert size_of(await at.raw(handle.id)) < 100_000
            [told], history = await at.ask(Call("call_tool", ["fake", "echo"]))
            assert told.raw == digest
            await resolve(history.events, own.data_converter)
            assert await keys(endpoint, bucket) == [f"blobs/{digest[:2]}/{digest[2:4]}/{digest}"]
            async with s3(endpoint) as at_s3:
                await at_s3.delete_object(Bucket=bucket, Key=f"blobs/{digest[:2]}/{digest[2:4]}/{digest}")
            with pytest.raises(LostValueError, match=f"is not in the bucket {bucket}"):
                await chain(own, handle.id)


async def test_an_object_that_is_there_whole_is_left_alone_until_it_is_old(endpoint, bucket, monkeypatch):
    blobs = Bucket(bucket, endpoint=endpoint)

    await blobs.put(DIGEST, DATA)
    async with s3(endpoint) as client:
        await client.put_object(Bucket=bucket, Key=blobs._key(DIGEST), Body=DATA[:3])
    await blobs.put(DIGEST, DATA)
    assert await blobs.get(DIGEST, len(DATA)) == DATA
    async with s3(endpoint) as client:
        # Other bytes of the same length stay: nothing was written again.
        await client.put_object(Bucket=bucket, Key=blobs._key(DIGEST), Body=DATA[::-1])
    await asyncio.gather(*(blobs.put(DIGEST, DATA) for _ in range(5)))
    assert await blobs.get(DIGEST, len(DATA)) == DATA[::-1]
    monkeypatch.setattr(_s3, "FRESH", timedelta(0))
    await blobs.put(DIGEST, DATA)
    assert await blobs.get(DIGEST, len(DATA)) == DATA


async def test_a_changed_object_is_refused(endpoint, bucket):
    converter = data_converter(s3_settings(endpoint, bucket))
    large = "x" * 300_000
    payloads = await converter.encode([large])
    (key,) = await keys(endpoint, bucket)
    async with s3(endpoint) as client:
        await client.put_object(Bucket=bucket, Key=key, Body=b"y" * 300_002)
    with pytest.raises(LostValueError, match="was changed"):
        await converter.decode(payloads, [str])


async def test_an_object_of_another_size_is_not_read(endpoint, bucket, monkeypatch):
    blobs = Bucket(bucket, endpoint=endpoint)
    await blobs.put(DIGEST, DATA)

    async def never(*_: object) -> bytes:
        raise AssertionError

    monkeypatch.setattr("aiobotocore.response.StreamingBody.read", never)
    for size in (0, len(DATA) - 1, len(DATA) + 1, 10**14):
        assert await blobs.get(DIGEST, size) == b""


async def test_a_bucket_that_cannot_be_used_is_an_error_that_names_it_and_no_lost_value(endpoint):
    for doing, blobs in (
        ("NoSuchBucket", Bucket("no-such-bucket", endpoint=endpoint)),
        ("EndpointConnectionError", Bucket("b", endpoint="http://127.0.0.1:9")),
    ):
        for asked in (blobs.put(DIGEST, DATA), blobs.get(DIGEST, len(DATA))):
            with pytest.raises(StorageError, match=doing) as failed:
                await asked
            assert blobs.where in str(failed.value)


async def test_an_object_that_is_not_there_is_none(endpoint, bucket):
    assert await Bucket(bucket, endpoint=endpoint).get(DIGEST, len(DATA)) is None


def test_without_its_package_a_bucket_says_what_to_install(monkeypatch):
    monkeypatch.setattr(_s3, "find_spec", lambda _: None)
    with pytest.raises(StorageError, match=r"install openwop-mcp-pack\[s3\]"):
        data_converter(s3_settings("http://127.0.0.1:9", "b"))
