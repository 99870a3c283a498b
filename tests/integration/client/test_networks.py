"""The network policy, end to end: the address dialled is the one that was checked, on each hop and each time."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from openwop_mcp.client._clients import Clients
from openwop_mcp.client._network import Network
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.config import Settings
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, EgressDeniedError, McpError, TimeLimitError
from tests.support.fake_server import FakeServer, Reply, Request, modern
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, client_of
from tests.support.patience import PATIENCE

NAME = "mcp.example"


class Net:
    """Names as told, and the addresses that were dialled, of which only those of this machine answer."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.dialled: list[str] = []
        self.silent: set[str] = set()

    def __setitem__(self, name: str, addresses: list[str]) -> None:
        self.names[name] = addresses


@pytest.fixture
async def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    loop = asyncio.get_running_loop()
    connect, resolve = loop.sock_connect, loop.getaddrinfo
    made = Net()

    async def getaddrinfo(host: Any, port: Any, **options: Any) -> Any:
        if host not in made.names:
            return await resolve(host, port, **options)
        made.asked.append(host)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in made.names[host]
        ]

    async def sock_connect(sock: socket.socket, address: Any) -> None:
        made.dialled.append(address[0])
        if address[0] in made.silent:
            await asyncio.Event().wait()
        if not address[0].startswith("127."):
            raise ConnectionRefusedError(111, "Connection refused")
        await connect(sock, address)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    return made


async def _failure(url: str, network: Network, **timeouts: float) -> McpError:
    async with HttpPool() as pool:
        with pytest.raises(McpError) as caught:
            async with asyncio.timeout(PATIENCE):
                await client_of(url, pool, network=network, **timeouts).call_tool("t", ARGUMENTS)
    return caught.value


def _is_denied(error: McpError, address: str, reason: str, network: str) -> bool:
    assert isinstance(error, EgressDeniedError)
    assert (error.code, error.delivery, error.retryable) == ("egress_denied", Delivery.NOT_SENT, False)
    assert error.facts == {"address": address, "reason": reason, "network": network}
    assert ".network)" in error.message
    return True


INNER = [
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("::1", "loopback"),
    ("::ffff:127.0.0.1", "loopback"),
    ("::127.0.0.1", "loopback"),
    ("64:ff9b::7f00:1", "loopback"),
    ("10.1.2.3", "private"),
    ("172.31.0.1", "private"),
    ("192.168.1.1", "private"),
    ("fd12:3456::1", "private"),
    ("::ffff:192.168.1.1", "private"),
    ("2002:c0a8:101::1", "private"),
    ("100.64.0.1", "shared"),
]
LOCAL = [
    ("169.254.169.254", "link-local"),
    ("::ffff:169.254.169.254", "link-local"),
    ("64:ff9b::a9fe:a9fe", "link-local"),
    ("fe80::1", "link-local"),
    ("100.100.100.200", "metadata"),
    ("fd00:ec2::254", "metadata"),
    ("192.0.2.1", "reserved"),
    ("240.0.0.1", "reserved"),
    ("0.0.0.0", "unspecified"),
    ("::", "unspecified"),
    ("::ffff:0.0.0.0", "unspecified"),
    ("255.255.255.255", "broadcast"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
]


@pytest.mark.parametrize(("address", "reason"), [*INNER, *LOCAL])
async def test_by_default_a_name_leads_to_public_addresses_only(net: Net, address: str, reason: str) -> None:
    net[NAME] = [address]
    assert _is_denied(await _failure(f"http://{NAME}/mcp", "public"), address, reason, "public")
    assert net.dialled == []


@pytest.mark.parametrize(("address", "reason"), LOCAL)
@pytest.mark.parametrize("network", ["private", "any"])
async def test_no_name_leads_to_what_only_an_operator_may_name(
    net: Net, address: str, reason: str, network: Network
) -> None:
    net[NAME] = [address]
    assert _is_denied(await _failure(f"http://{NAME}/mcp", network), address, reason, network)
    assert net.dialled == []


@pytest.mark.parametrize("address", ["8.8.8.8", "::ffff:8.8.8.8", "2606:4700:4700::1111"])
async def test_a_private_server_is_not_sought_in_public(net: Net, address: str) -> None:
    net[NAME] = [address]
    assert _is_denied(await _failure(f"https://{NAME}/mcp", "private"), address, "public", "private")
    assert net.dialled == []


@pytest.mark.parametrize(
    ("host", "address", "reason"),
    [
        ("127.0.0.1", "127.0.0.1", "loopback"),
        ("0x7f000001", "127.0.0.1", "loopback"),
        ("0x7f.1", "127.0.0.1", "loopback"),
        ("localhost", "127.0.0.1", "loopback"),
        ("[::1]", "::1", "loopback"),
        ("[0:0:0:0:0:0:0:1]", "::1", "loopback"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1", "loopback"),
        ("[::ffff:7f00:1]", "::ffff:7f00:1", "loopback"),
        ("0xa9fea9fe", "169.254.169.254", "link-local"),
        ("0xA9.0xFE.0xa9.0xfe", "169.254.169.254", "link-local"),
        ("0x0", "0.0.0.0", "unspecified"),
        ("169.254.169.254", "169.254.169.254", "link-local"),
        ("0.0.0.0", "0.0.0.0", "unspecified"),
        ("[::]", "::", "unspecified"),
        ("[::ffff:0:0]", "::ffff:0:0", "unspecified"),
    ],
)
async def test_an_address_is_judged_however_it_is_spelled(net: Net, host: str, address: str, reason: str) -> None:
    net["localhost"] = ["127.0.0.1"]
    error = await _failure(f"http://{host}/mcp", "public")
    assert isinstance(error, EgressDeniedError)
    assert socket.inet_pton(*_family(error.facts["address"])) == socket.inet_pton(*_family(address))
    assert error.facts["reason"] == reason
    assert net.dialled == []


def _family(address: str) -> tuple[int, str]:
    return (socket.AF_INET6 if ":" in address else socket.AF_INET), address


@pytest.mark.parametrize(
    "host", ["2130706433", "017700000001", "127.1", "127.0.1", "2852039166", "169.254.43518", "0", "0177.1"]
)
@pytest.mark.parametrize("network", ["public", "private", "any"])
async def test_a_number_that_is_no_whole_address_is_dialled_under_no_policy(
    net: Net, host: str, network: Network
) -> None:
    error = await _failure(f"http://{host}/mcp", network)
    assert error.delivery is Delivery.NOT_SENT
    assert net.dialled == []


@pytest.mark.parametrize("host", ["0x0", "0.0.0.0", "[::]", "[::ffff:0:0]", "224.0.0.1", "255.255.255.255"])
@pytest.mark.parametrize("network", ["private", "any"])
async def test_what_is_no_servers_address_is_refused_even_if_it_is_named(net: Net, host: str, network: Network) -> None:
    assert isinstance(await _failure(f"http://{host}/mcp", network), EgressDeniedError)
    assert net.dialled == []


@pytest.mark.parametrize("network", ["private", "any"])
@pytest.mark.parametrize(
    ("host", "dialled"),
    [("169.254.169.254", "169.254.169.254"), ("[fd00:ec2:0::254]", "fd00:ec2::254"), ("100.100.100.200", None)],
)
async def test_a_link_local_address_that_the_settings_name_is_dialled(
    net: Net, host: str, dialled: str | None, network: Network
) -> None:
    error = await _failure(f"http://{host}/mcp", network)
    assert isinstance(error, ConnectError)
    assert net.dialled == [dialled or host]


@pytest.mark.parametrize("host", ["0xa9fea9fe", "0xa9.0xfea9fe", "0xA9.254.169.254"])
async def test_a_spelling_that_a_resolver_must_read_names_no_address(net: Net, host: str) -> None:
    assert isinstance(await _failure(f"http://{host}/mcp", "any"), EgressDeniedError)
    assert net.dialled == []


@pytest.mark.parametrize("network", ["private", "any"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0x7f.1", NAME])
async def test_one_s_own_network_is_reached_where_the_settings_say_so(net: Net, host: str, network: Network) -> None:
    net[NAME] = ["127.0.0.1"]
    async with FakeServer(modern()) as server, HttpPool() as pool:
        client = client_of(f"http://{host}:{server.port}/mcp", pool, network=network)
        await client.call_tool("t", ARGUMENTS)
        assert net.dialled == ["127.0.0.1"]


@pytest.mark.parametrize(
    "addresses",
    [
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["169.254.169.254", "0.0.0.0", "127.0.0.1"],
        ["::ffff:169.254.169.254", "fe80::1", "127.0.0.1", "2606:4700:4700::1111"],
    ],
)
async def test_of_several_addresses_only_those_within_the_policy_are_dialled(net: Net, addresses: list[str]) -> None:
    net[NAME] = addresses
    async with FakeServer(modern()) as server, HttpPool() as pool:
        await client_of(f"http://{NAME}:{server.port}/mcp", pool).call_tool("t", ARGUMENTS)
    assert net.dialled == ["127.0.0.1"]


@pytest.mark.parametrize("addresses", [["127.0.0.1", "10.0.0.1"], ["::1", "127.0.0.1", "169.254.169.254"]])
async def test_several_addresses_that_are_all_outside_the_policy_are_refused(net: Net, addresses: list[str]) -> None:
    net[NAME] = addresses
    error = await _failure(f"http://{NAME}/mcp", "public")
    assert isinstance(error, EgressDeniedError)
    assert error.facts["address"] in addresses
    assert net.dialled == []


@pytest.mark.parametrize("addresses", [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["10.0.0.1", "8.8.8.8"]])
async def test_a_server_that_is_down_is_not_refused_for_another_address_of_its_name(
    net: Net, addresses: list[str]
) -> None:
    net[NAME] = addresses
    error = await _failure(f"http://{NAME}/mcp", "public")
    assert isinstance(error, ConnectError)
    assert (error.delivery, error.retryable) == (Delivery.NOT_SENT, True)
    assert set(net.dialled) == {"8.8.8.8"}


async def test_a_server_that_is_silent_is_not_refused_for_another_address_of_its_name(net: Net) -> None:
    net[NAME] = ["127.0.0.1", "8.8.8.8"]
    net.silent.add("8.8.8.8")
    error = await _failure(f"http://{NAME}/mcp", "public", connect=0.1)
    assert isinstance(error, TimeLimitError)
    assert (error.limit, error.delivery) == ("connect", Delivery.NOT_SENT)


async def test_a_name_that_turns_is_judged_anew_each_time_it_is_dialled(net: Net) -> None:
    net[NAME] = ["127.0.0.1"]
    calm = modern()

    async def last(request: Request) -> Reply:
        reply = await calm(request)
        assert reply is not None
        return Reply(headers=[*reply.headers, ("Connection", "close")], body=reply.body)

    async with FakeServer(last) as server, HttpPool() as pool:
        client = client_of(f"http://{NAME}:{server.port}/mcp", pool)
        await client.call_tool("t", ARGUMENTS)
        _turn(net, pool, ["169.254.169.254"])
        with pytest.raises(EgressDeniedError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert _is_denied(caught.value, "169.254.169.254", "link-local", "private")
        assert len(server.requests) == 1
    assert net.dialled == ["127.0.0.1"]


async def test_a_connection_that_is_there_leads_where_it_was_checked_to_lead(net: Net) -> None:
    net[NAME] = ["127.0.0.1"]
    async with FakeServer(modern()) as server, HttpPool() as pool:
        client = client_of(f"http://{NAME}:{server.port}/mcp", pool)
        await client.call_tool("t", ARGUMENTS)
        _turn(net, pool, ["169.254.169.254"])
        await client.call_tool("t", ARGUMENTS)
        assert server.connections == 1
    assert net.dialled == ["127.0.0.1"]


def _turn(net: Net, pool: HttpPool, addresses: list[str]) -> None:
    """The name leads elsewhere from now on, and nobody remembers where it led."""
    net[NAME] = addresses
    for transport in pool._transports.values():
        transport.client.connector.clear_dns_cache()


@pytest.mark.parametrize(
    ("keeps", "reached"), [(True, True), (False, False)], ids=["on its connection", "on a connection of its own"]
)
async def test_a_redirect_within_the_origin_is_judged_by_the_address_it_is_dialled_at(
    net: Net, keeps: bool, reached: bool
) -> None:
    net[NAME] = ["127.0.0.1"]
    calm = modern()

    async def moved(request: Request) -> Reply | None:
        if request.path == "/b":
            return await calm(request)
        _turn(net, pool, ["169.254.169.254"])
        return Reply(status=307, headers=[("Location", "/b"), *([] if keeps else [("Connection", "close")])])

    async with FakeServer(moved) as server, HttpPool() as pool:
        client = client_of(f"http://{NAME}:{server.port}/mcp", pool)
        if reached:
            await client.call_tool("t", ARGUMENTS)
        else:
            with pytest.raises(EgressDeniedError) as caught:
                await client.call_tool("t", ARGUMENTS)
            assert _is_denied(caught.value, "169.254.169.254", "link-local", "private")
        assert len(server.requests) == 1 + reached
    assert net.dialled == ["127.0.0.1"]


async def test_servers_of_different_policies_share_no_connection(net: Net) -> None:
    async with FakeServer(modern()) as server, HttpPool() as pool:
        await client_of(server.url, pool, network="private").call_tool("t", ARGUMENTS)
        with pytest.raises(EgressDeniedError):
            await client_of(server.url, pool, network="public").call_tool("t", ARGUMENTS)
        await client_of(server.url, pool, network="any").call_tool("t", ARGUMENTS)
        await client_of(server.url, pool, network="private").call_tool("t", ARGUMENTS)
        assert [request.connection for request in server.requests] == [1, 2, 1]


async def test_one_server_s_name_for_an_address_gives_no_other_the_way_to_it(net: Net) -> None:
    async with HttpPool() as pool:
        with pytest.raises(ConnectError):
            await client_of("http://169.254.1.1/mcp", pool, network="any").call_tool("t", ARGUMENTS)
        net[NAME] = ["169.254.1.1"]
        with pytest.raises(EgressDeniedError):
            await client_of(f"http://{NAME}/mcp", pool, network="any").call_tool("t", ARGUMENTS)
    assert net.dialled == ["169.254.1.1"]


async def test_many_calls_to_a_refused_address_are_each_refused_with_nothing_dialled(net: Net) -> None:
    net[NAME] = ["10.0.0.1"]
    async with HttpPool() as pool:
        client = client_of(f"http://{NAME}/mcp", pool, network="public")
        ended = await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(20)), return_exceptions=True)
    assert {type(error) for error in ended} == {EgressDeniedError}
    assert net.dialled == []


@pytest.mark.parametrize("floor", ["2026-07-28", "2025-03-26"])
async def test_a_refused_address_is_no_word_about_eras(net: Net, floor: str) -> None:
    net[NAME] = ["127.0.0.1"]
    async with HttpPool() as pool:
        client = client_of(f"http://{NAME}/mcp", pool, network="public", options={"floor": floor})
        with pytest.raises(EgressDeniedError):
            await client.list_tools()


async def test_a_stream_is_taken_up_within_the_policy_only(net: Net) -> None:
    net[NAME] = ["127.0.0.1"]
    turned = asyncio.Event()

    def cut(_: Request) -> Reply:
        _turn(net, pool, ["169.254.169.254"])
        turned.set()
        head = [("Content-Type", "text/event-stream"), ("Connection", "close")]
        return Reply(headers=head, chunks=[b"id: one\nretry: 10\ndata:\n\n"])

    old = LegacyServer(results={"tools/call": cut}, sessions=False)
    async with FakeServer(old) as server, HttpPool() as pool:
        url = f"http://{NAME}:{server.port}/mcp"
        client = client_of(url, pool, options={"floor": "2025-03-26"}, idle=1.0)
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert turned.is_set()
    assert caught.value.delivery is Delivery.UNKNOWN
    assert set(net.dialled) == {"127.0.0.1"}


@pytest.mark.parametrize("network", ["public", "private"])
async def test_documents_of_an_authorization_server_are_within_the_policy_too(net: Net, network: Network) -> None:
    refused = {"public": ["127.0.0.1"], "private": ["8.8.8.8"]}[network]
    net["auth.example"] = refused
    async with HttpPool() as pool:
        for url in ("https://auth.example/.well-known/oauth-authorization-server", "https://169.254.169.254/token"):
            with pytest.raises(EgressDeniedError):
                await pool.fetcher(network)("GET", url, {}, None)
    assert net.dialled == []


async def test_a_refused_document_names_the_policy(net: Net) -> None:
    net["auth.example"] = ["10.0.0.1"]
    async with HttpPool() as pool:
        with pytest.raises(EgressDeniedError) as caught:
            await pool.fetcher("public")("POST", "https://auth.example/token", {}, b"grant_type=x")
    assert _is_denied(caught.value, "10.0.0.1", "private", "public")


@pytest.mark.parametrize("network", [None, "public", "private", "any"])
async def test_the_policy_of_a_server_is_that_of_its_settings(net: Net, network: Network | None) -> None:
    async with FakeServer(modern()) as server:
        given = {} if network is None else {"network": network}
        settings = Settings.model_validate({"servers": {"one": {"url": server.url, **given}}})
        async with Clients(settings, client_info=b'{"name":"t","version":"1"}', environ={}) as clients:
            if network in (None, "public"):
                with pytest.raises(EgressDeniedError) as caught:
                    await clients["one"].call_tool("t", ARGUMENTS)
                assert _is_denied(caught.value, "127.0.0.1", "loopback", "public")
                assert server.connections == 0
            else:
                await clients["one"].call_tool("t", ARGUMENTS)
