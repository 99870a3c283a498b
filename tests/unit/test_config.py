from __future__ import annotations

import pytest

from openwop_mcp.config import SCOPES, EffectivePolicy, SettingsError, load
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.protocol.keys import KeyArgument

SECRETS = {"OPENWOP_KEY": "a-key-of-the-host", "WEATHER_TOKEN": "a-token-of-the-server"}

WHOLE = """
[temporal]
address = "temporal.internal:7233"
namespace = "flows"
tls = true
executable = "/opt/temporal"

[host]
bind = "127.0.0.1:0"
workflows = ["flows", "more"]
fixtures = true
mrtr_max_rounds = 4

[worker]
tenant = "acme"
task_queue = "other"
max_activities = 50
heartbeat_timeout = 5

[limits]
result_bytes = 100_000

[[keys]]
id = "dev"
secret = { env = "OPENWOP_KEY" }
tenant = "acme"
subject = "dev"
scopes = ["*"]

[[keys]]
id = "audit"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
tenant = "acme"
subject = "auditor"
scopes = ["runs:read", "audit:read"]

[servers.weather]
url = "http://127.0.0.1:7801/mcp"
tenants = ["acme", "other"]
network = "private"
credential = { bearer = { env = "WEATHER_TOKEN" } }
timeouts = { connect = 2, first_byte = 10.5 }
retry = { attempts = 5, max_wait = 20, total = 30 }

[servers.weather.tools."*"]
safety_tier = "write"

[servers.weather.tools.get_forecast]
safety_tier = "read"
egress = "host-mediated"

[servers.open]
url = "https://example.org/mcp"
"""

SERVER = '[servers.weather]\nurl = "https://example.org/mcp"\n'


@pytest.fixture
def settings(tmp_path):
    """Load settings from TOML text, under an environment."""

    def read(text, environ=None):
        file = tmp_path / "s.toml"
        file.write_text(text, encoding="utf-8")
        return load(str(file), environ=SECRETS | (environ or {}))

    return read


@pytest.fixture
def faults(settings, tmp_path):
    """The lines of the error, without the folder of the file."""

    def read(text, environ=None):
        with pytest.raises(SettingsError) as caught:
            settings(text, environ)
        return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).split("\n")]

    return read


# --- what is read ---


def test_every_table_is_read(settings):
    read = settings(WHOLE)
    assert read.temporal.address == "temporal.internal:7233"
    assert read.temporal.tls is True
    assert read.temporal.executable == "/opt/temporal"
    assert read.host.workflows == ("flows", "more")
    assert read.worker.tenant == "acme"
    assert read.worker.heartbeat_timeout == 5.0
    assert read.limits.result_bytes == 100_000
    assert [key.id for key in read.keys] == ["dev", "audit"]
    assert read.keys[0].secret.reveal(SECRETS) == SECRETS["OPENWOP_KEY"]
    assert read.keys[1].scopes == ("runs:read", "audit:read")
    weather = read.servers["weather"]
    assert weather.timeouts.first_byte == 10.5
    assert weather.timeouts.total == 300.0
    assert weather.retry.policy == RetryPolicy(attempts=5, max_wait=20.0, total=30.0)


def test_the_defaults_need_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read = load(None, environ={})
    assert read.temporal.address == "127.0.0.1:7233"
    assert read.temporal.namespace == "default"
    assert read.worker.task_queue == "openwop-mcp"
    assert read.worker.tenant == "default"
    assert read.limits.result_bytes == 64 * 1024**2
    assert read.servers == {}


def test_the_defaults_of_a_server_are_those_of_the_retry_table(settings):
    server = settings(SERVER).servers["weather"]
    assert server.retry.policy == RetryPolicy()
    assert server.network == "public"
    assert server.tenants == ("*",)
    assert server.credential is None


def test_the_default_file_is_read_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "openwop-mcp.toml").write_text('[worker]\ntenant = "here"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load(None, environ={}).worker.tenant == "here"


def test_a_byte_order_mark_is_no_fault(settings):
    assert settings("\ufeff" + SERVER).servers.keys() == {"weather"}


def test_a_server_is_there_for_its_tenants_only(settings):
    read = settings(WHOLE)
    assert read.server("weather", "acme") is read.servers["weather"]
    assert read.server("weather", "stranger") is None
    assert read.server("open", "stranger") is read.servers["open"]
    assert read.server("absent", "acme") is None


def test_settings_cannot_be_changed(settings):
    with pytest.raises(ValueError, match="frozen"):
        settings("").worker.tenant = "other"


def test_a_call_that_is_given_less_time_narrows_every_limit(settings):
    narrowed = settings(SERVER).servers["weather"].timeouts.narrowed(20.0)
    assert (narrowed.connect, narrowed.first_byte, narrowed.idle, narrowed.total) == (5.0, 20.0, 20.0, 20.0)


# --- tool policy ---

GLOBS = """
[servers.weather.tools."*"]
safety_tier = "write"
replay_policy = "idempotent"
egress = "none"
[servers.weather.tools."get_*"]
safety_tier = "read"
[servers.weather.tools."get_fore*"]
egress = "host-owned"
[servers.weather.tools.get_forecast]
replay_policy = "deterministic"
[servers.weather.tools."set_[ab]*"]
safety_tier = "pure"
[servers.weather.tools."????x"]
egress = "safe-fetch"
[servers.weather.tools."x???*"]
egress = "host-mediated"
"""


@pytest.mark.parametrize(
    ("tool", "policy"),
    [
        ("other", ("write", "idempotent", "none")),
        ("get_news", ("read", "idempotent", "none")),
        ("get_foreign", ("read", "idempotent", "host-owned")),
        ("get_forecast", ("read", "deterministic", "host-owned")),
        ("set_a", ("pure", "idempotent", "none")),
        ("set_c", ("write", "idempotent", "none")),
        ("x---x", ("write", "idempotent", "host-mediated")),
    ],
)
def test_a_tools_policy_is_merged_field_by_field_from_the_most_specific_entry(settings, tool, policy):
    read = settings(SERVER + GLOBS).servers["weather"].policy(tool)
    assert (read.safety_tier, read.replay_policy, read.egress) == policy


def test_the_order_of_the_file_does_not_make_a_glob_specific(settings):
    text = (
        SERVER + '[servers.weather.tools.x]\nsafety_tier = "read"\n[servers.weather.tools."*"]\nsafety_tier = "write"\n'
    )
    assert settings(text).servers["weather"].policy("x").safety_tier == "read"


def test_an_unclassified_tool_writes_and_is_not_repeated(settings):
    policy = settings(SERVER).servers["weather"].policy("anything")
    assert policy == EffectivePolicy()
    assert (policy.safety_tier, policy.replay_policy, policy.on_doubt) == ("write", "non-deterministic", "fail")
    assert not policy.repeat_safe


@pytest.mark.parametrize("doubt", ["fail", "ask", "resend"])
@pytest.mark.parametrize(
    ("tier", "replay", "honoured", "safe"),
    [
        ("pure", "non-deterministic", False, True),
        ("read", "non-deterministic", False, True),
        ("write", "deterministic", False, True),
        ("write", "idempotent", False, True),
        ("write", "non-deterministic", True, True),
        ("write", "non-deterministic", False, False),
    ],
)
def test_a_repeat_is_safe_by_tier_replay_policy_or_a_key_that_the_server_honours_or_where_the_operator_insists(
    settings, tier, replay, honoured, safe, doubt
):
    text = (
        f"{SERVER}honours_key = {str(honoured).lower()}\n[servers.weather.tools.x]\n"
        f"safety_tier = '{tier}'\nreplay_policy = '{replay}'\non_doubt = '{doubt}'\n"
    )
    policy = settings(text).servers["weather"].policy("x")
    assert policy.repeat_safe is (safe or doubt == "resend")
    assert policy.on_doubt == doubt


# --- the key of a call ---


@pytest.mark.parametrize(
    ("text", "carriers"),
    [
        ("", ("header", "meta")),
        ("key_carriers = []", ()),
        ("key_carriers = ['meta']", ("meta",)),
        ("key_carriers = ['header', { argument = 'id key' }]", ("header", KeyArgument("id key"))),
    ],
)
def test_what_carries_a_calls_key_is_as_it_is_written(settings, text, carriers):
    server = settings(SERVER + text).servers["weather"]
    assert server.key_carriers == carriers
    assert server.honours_key is False


@pytest.mark.parametrize("carriers", ["['header', 'meta']", "['meta']", "['header', { argument = 'key' }]"])
def test_a_command_may_honour_a_key_that_reaches_it(settings, carriers):
    text = f"[servers.weather]\ncommand = ['x']\nhonours_key = true\nkey_carriers = {carriers}"
    assert settings(text).servers["weather"].policy("anything").repeat_safe


def test_settings_with_an_argument_for_the_key_can_be_shown(settings):
    written = settings(SERVER + "key_carriers = ['header', { argument = 'key' }]").servers["weather"]
    assert written.model_dump(include={"key_carriers"}) == {"key_carriers": ("header", {"argument": "key"})}


# --- the environment ---


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        ("WORKER__MAX_ACTIVITIES", "7", lambda s: s.worker.max_activities == 7),
        ("WORKER__TENANT", "12345", lambda s: s.worker.tenant == "12345"),
        ("WORKER__HEARTBEAT_TIMEOUT", "2.5", lambda s: s.worker.heartbeat_timeout == 2.5),
        ("TEMPORAL__TLS", "false", lambda s: s.temporal.tls is False),
        ("TEMPORAL__EXECUTABLE", "/usr/bin/temporal", lambda s: s.temporal.executable == "/usr/bin/temporal"),
        ("HOST__WORKFLOWS", '["a", "b"]', lambda s: s.host.workflows == ("a", "b")),
        ("HOST__WORKFLOWS__1", "b", lambda s: s.host.workflows == ("flows", "b")),
        ("SERVERS__WEATHER__URL", "http://h/x", lambda s: s.servers["weather"].url == "http://h/x"),
        ("SERVERS__WEATHER__TIMEOUTS__TOTAL", "9", lambda s: s.servers["weather"].timeouts.total == 9.0),
        ("SERVERS__WEATHER__TIMEOUTS", "{ total = 9 }", lambda s: s.servers["weather"].timeouts.connect == 5.0),
        ("SERVERS__WEATHER__TIMEOUTS", '{"total": 9}', lambda s: s.servers["weather"].timeouts.total == 9.0),
        ("SERVERS__WEATHER__TOOLS__get_forecast__SAFETY_TIER", "pure", lambda s: tier(s) == "pure"),
        ("SERVERS__NEW__URL", "http://h/x", lambda s: s.servers["new"].url == "http://h/x"),
        ("SERVERS__New__URL", "http://h/x", lambda s: s.servers["New"].url == "http://h/x"),
        ("SERVERS", '{ only = { url = "http://h/x" } }', lambda s: s.servers.keys() == {"only"}),
        ("SERVERS__WEATHER__HONOURS_KEY", "true", lambda s: s.servers["weather"].honours_key),
        ("SERVERS__WEATHER__KEY_CARRIERS", '["meta"]', lambda s: s.servers["weather"].key_carriers == ("meta",)),
        ("SERVERS__WEATHER__KEY_CARRIERS__0", "meta", lambda s: s.servers["weather"].key_carriers == ("meta",)),
        ("SERVERS__WEATHER__KEY_CARRIERS__0", '{ argument = "k" }', lambda s: argument(s) == "k"),
        ("SERVERS__WEATHER__KEY_CARRIERS__0__ARGUMENT", "k", lambda s: argument(s) == "k"),
        ("KEYS__1__SUBJECT", "other", lambda s: s.keys[1].subject == "other"),
        ("KEYS__0__SECRET__ENV", "WEATHER_TOKEN", lambda s: s.keys[0].secret.env == "WEATHER_TOKEN"),
        ("SERVERS__WEATHER__CREDENTIAL__BEARER__ENV", "OPENWOP_KEY", lambda s: bearer(s) == SECRETS["OPENWOP_KEY"]),
    ],
)
def test_every_value_can_be_given_by_the_environment_which_wins(settings, variable, value, found):
    assert found(settings(WHOLE, {f"OPENWOP_MCP__{variable}": value}))


def tier(settings):
    return settings.servers["weather"].policy("get_forecast").safety_tier


def argument(settings):
    (carrier,) = settings.servers["weather"].key_carriers
    return carrier.argument


def bearer(settings):
    return settings.servers["weather"].credential.bearer.reveal(SECRETS)


def test_a_key_can_be_added_by_the_environment(settings):
    given = {"ID": "new", "SECRET": '{ env = "OPENWOP_KEY" }', "TENANT": "t", "SUBJECT": "s", "SCOPES": '["runs:read"]'}
    environ = {f"OPENWOP_MCP__KEYS__0__{name}": value for name, value in given.items()}
    (key,) = settings("", environ).keys
    assert key.id == "new"
    assert key.scopes == ("runs:read",)


def test_more_than_ten_entries_of_an_array_stand_in_the_order_of_their_numbers(settings):
    folders = {f"OPENWOP_MCP__HOST__WORKFLOWS__{at}": f"folder-{at}" for at in range(12)}
    keys = {}
    for at in range(12):
        given = {"ID": f"key-{at}", "SHA256": f"{at:064}", "TENANT": "t", "SUBJECT": "s", "SCOPES__0": "*"}
        keys |= {f"OPENWOP_MCP__KEYS__{at}__{name}": value for name, value in given.items()}
    read = settings("", folders | keys)
    assert read.host.workflows == tuple(folders.values())
    assert [key.id for key in read.keys] == [f"key-{at}" for at in range(12)]


def test_an_entry_as_a_whole_and_another_by_its_values_can_both_be_given(settings):
    whole = "{ id = 'b', sha256 = '%064d', tenant = 't', subject = 's', scopes = ['*'] }"
    given = {"ID": "a", "SHA256": "1" * 64, "TENANT": "t", "SUBJECT": "s", "SCOPES": "['*']"}
    environ = {f"OPENWOP_MCP__KEYS__0__{name}": value for name, value in given.items()}
    read = settings("", environ | {"OPENWOP_MCP__KEYS__1": whole % 2})
    assert [key.id for key in read.keys] == ["a", "b"]


def test_an_entry_beyond_a_gap_is_refused_and_moves_no_other(faults):
    environ = {f"OPENWOP_MCP__HOST__WORKFLOWS__{at}": "x" for at in (0, 2, 11)}
    lines = faults("", environ)
    assert [line.split(": ")[0] for line in lines] == [
        "environment variable OPENWOP_MCP__HOST__WORKFLOWS__2",
        "environment variable OPENWOP_MCP__HOST__WORKFLOWS__11",
    ]
    assert all(line.endswith("the next one here is 1") for line in lines)


def test_a_variable_reaches_a_server_whose_id_no_variable_can_spell(settings):
    text = '[servers."my-weather.v2"]\nurl = "http://h/x"\n'
    read = settings(text, {"OPENWOP_MCP__SERVERS__MY_WEATHER_V2__NETWORK": "any"})
    assert read.servers["my-weather.v2"].network == "any"


def test_a_whole_table_and_a_value_in_it_can_both_be_given(settings):
    environ = {"OPENWOP_MCP__WORKER__TENANT": "acme", "OPENWOP_MCP__WORKER": '{ tenant = "x", task_queue = "q" }'}
    worker = settings("", environ).worker
    assert (worker.tenant, worker.task_queue) == ("acme", "q")


def test_other_variables_are_none_of_ours(settings):
    assert settings("", {"OPENWOP_MCP_WORKER": "x", "OPENWOP_KEY": "y"}).worker.tenant == "default"


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("WORKER__MAX_ACTIVITIES", "many", "worker.max_activities: wrong type: write a whole number from 1 to 10000"),
        (
            "WORKER__MAX_ACTIVITIES",
            "7\nx = 1",
            "worker.max_activities: wrong type: write a whole number from 1 to 10000",
        ),
        ("WORKER__MAX_ACTIVITY", "7", 'worker.max_activity: unknown key: write "max_activities"'),
        ("WORKR__TENANT", "x", 'workr: unknown key: write "worker"'),
        ("SERVERS__NEW__NETWORK", "any", "servers.new: write one of url = "),
        ("KEYS__0__ID", "x", "keys.0.tenant: missing: write 1 to 128"),
        ("KEYS__7__ID", "x", "keys.7: positions in an array are 0, 1 and so on, without a gap: the next one here is 0"),
        ("HOST__WORKFLOWS__FIRST", "x", "host.workflows.FIRST: positions in an array are 0, 1 and so on"),
        ("HOST__WORKFLOWS__00", "x", "host.workflows.00: positions in an array are 0, 1 and so on"),
        ("", "x", '"": unknown key: the keys here are temporal'),
    ],
)
def test_a_fault_in_the_environment_names_the_variable_and_the_key(faults, variable, value, line):
    lines = faults("", {f"OPENWOP_MCP__{variable}": value})
    assert any(fault.startswith(f"environment variable OPENWOP_MCP__{variable}: {line}") for fault in lines)


# --- faults of the file ---

CARRIERS = 'write key_carriers = ["header", "meta"]'


def test_a_named_file_that_is_missing_is_a_fault(tmp_path):
    with pytest.raises(SettingsError, match=r"absent\.toml: there is no such file: write --config"):
        load(str(tmp_path / "absent.toml"), environ={})


def test_a_folder_or_bytes_that_are_no_text_are_faults(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        load(str(tmp_path), environ={})
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="save it as UTF-8"):
        load(str(tmp_path / "x"), environ={})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[servers.w]\nurl='a'\n[servers.w]\n", 's.toml: servers.w: two servers have the id "w"'),
        ('[servers]\nw = { url = "a" }\n[servers.w]\n', 's.toml: servers.w: two servers have the id "w"'),
        ('[servers.w]\nurl="a"\n[servers]\nw = { url = "b" }\n', 's.toml: servers.w: two servers have the id "w"'),
        ('[servers."a.b"]\n[servers."a.b"]\n', 's.toml: servers."a.b": two servers have the id "a.b"'),
        ("[worker]\ntenant='a'\ntenant='b'\n[host]", "s.toml: worker.tenant: stands twice: keep one (line 3)"),
        ("[servers.w]\nurl='a'\nurl='b'", "s.toml: servers.w.url: stands twice: keep one (line 3)"),
        ("[worker]\n[worker]", "s.toml: worker: stands twice: keep one (line 2)"),
        ("worker = { tenant = 'a', tenant = 'b' }", "s.toml: worker: stands twice: keep one (line 1)"),
        ("x = 1\nx = 2", "s.toml: line 2: a key stands twice: keep one"),
        ("[servers.w]\nurl = http://h/x\n", "s.toml: servers.w.url: not TOML at line 2: put text in double quotes"),
        ("[servers.w\n", "s.toml: not TOML at line 1: put text in double quotes"),
        ("[worker]\nhello\n", "s.toml: worker: not TOML at line 2: put text in double quotes"),
        ("[worker]\ntenant.x = y\n", "s.toml: worker: not TOML at line 2: put text in double quotes"),
        ("[servers.w]\nurl.a = b\n", "s.toml: servers.w: not TOML at line 2: put text in double quotes"),
        ("[servers.w]\nnetwork.a.b = c\n", "s.toml: servers.w: not TOML at line 2: put text in double quotes"),
        ("[worker]\n[logs]\nlevel = debug\n", "s.toml: logs.level: not TOML at line 3: put text in double quotes"),
        ("", None),
    ],
)
def test_faults_of_toml_name_the_line_and_the_key(faults, settings, text, line):
    if line is None:
        settings(text)
        return
    (fault,) = faults(text)
    assert fault.startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[workers]\n", 'workers: unknown key: write "worker"'),
        ("[worker]\nmax_activites = 5", 'worker.max_activites: unknown key: write "max_activities"'),
        (SERVER + "timeout = 5", 'servers.weather.timeout: unknown key: write "timeouts"'),
        (SERVER + "timeouts = { conect = 5 }", 'servers.weather.timeouts.conect: unknown key: write "connect"'),
        (SERVER + "[servers.weather.tools.'x.*']\ntier = 'read'", 'servers.weather.tools."x.*".tier: unknown key: '),
        (SERVER + 'command = ["x"]', "servers.weather: write one of url = "),
        ("[worker]\nmax_activities = '5'", "worker.max_activities: wrong type: write a whole number from 1"),
        ("[worker]\nmax_activities = 5.5", "worker.max_activities: wrong type: write a whole number from 1"),
        ("[worker]\nmax_activities = true", "worker.max_activities: wrong type: write a whole number from 1"),
        ("[worker]\nmax_activities = 0", "worker.max_activities: not a value for this key: write a whole number"),
        ("[worker]\nheartbeat_timeout = nan", "worker.heartbeat_timeout: not a value for this key: write seconds"),
        ("worker = 5", "worker: wrong type: write a table, as in [worker]"),
        ("servers = ['x']", "servers: wrong type: write tables by server id, as in [servers.weather]"),
        ("keys = { id = 'x' }", "keys: wrong type: write tables, each as in [[keys]]"),
        ("[host]\nworkflows = 'flows'", 'host.workflows: wrong type: write folders, as in workflows = ["flows"]'),
        ("[host]\nworkflows = [1]", 'host.workflows.0: wrong type: write folders, as in workflows = ["flows"]'),
        ("[host]\nbind = '8080'", "host.bind: not a value for this key: write host and port"),
        ("[host]\nbind = 'h:70000'", "host.bind: not a value for this key: write host and port"),
        ("[host]\nfixtures = 1", "host.fixtures: wrong type: write fixtures = true or fixtures = false"),
        ("[worker]\ntenant = 'a b'", "worker.tenant: not a value for this key: write 1 to 128"),
        ("[storage]\ndriver = 's3'", 'storage: driver = "s3" needs a bucket'),
        ("[storage]\nbucket = 'b'", 'storage: bucket, prefix, endpoint and region belong to driver = "s3"'),
        ("[storage]\ndriver = 'none'\nfolder = '/b'", 'storage: folder belongs to driver = "folder"'),
        ("[storage]\nfolder = 'blobs'", "storage.folder: not a value for this key: write an absolute path"),
        ("[limits]\nresult_bytes = 1", "limits.result_bytes: not a value for this key: write a number of bytes"),
        ("[worker.classes.default]", "worker.classes.default: default are the servers that are in no class"),
        ("[worker.classes.'a b']", 'worker.classes."a b": not a value for this key: write tables by class name'),
        ("[worker.classes.slow]\nmax_activities = 0", "worker.classes.slow.max_activities: not a value for this key"),
        ("[worker]\nserves = []", "worker.serves: not a value for this key: write names of classes"),
        ("[worker]\nserves = ['slow']", "worker.serves.0: no such class: write its table, as in [worker.classes.slow]"),
        (
            SERVER + "class = 'slow'",
            "servers.weather.class: no such class: write its table, as in [worker.classes.slow]",
        ),
        (
            "[worker.classes.local]\n" + SERVER + "class = 'slow'",
            "servers.weather.class: no such class: write its table, as in [worker.classes.slow]; or write one of local",
        ),
        ("[temporal]\ntls = true\nclient_cert = 'c'", "temporal: client_cert and client_key belong together"),
        ("[temporal]\ntls = true\nclient_key = { file = 'k' }", "temporal: client_cert and client_key belong together"),
        ("[temporal]\nclient_key = 'k'", "temporal.client_key: a credential is named, never written"),
        ("[temporal]\nserver_ca = 'c'", "temporal: server_ca, server_name, client_cert and client_key belong to"),
        ("[temporal]\napi_key = { env = 'KEY' }", "temporal: api_key would be sent in the clear: write tls = true"),
        ("[worker]\ndeployment = 'a.b'\nbuild_id = '1'", "worker.deployment: not a value for this key: write 1 to 64"),
        (SERVER + "tenants = []", 'servers.weather.tenants: not a value for this key: write tenants = ["*"]'),
        (SERVER + "tenants = ['a*']", 'servers.weather.tenants.0: not a value for this key: write tenants = ["*"]'),
        (SERVER + "timeouts = { total = 3601 }", "servers.weather.timeouts.total: not a value for this key: write se"),
        (SERVER + "timeouts = { idle = 0 }", "servers.weather.timeouts.idle: not a value for this key: write seconds"),
        (SERVER + "network = 'lan'", 'servers.weather.network: not a value for this key: write "public", "private" or'),
        (SERVER + "tools = { x = { safety_tier = 'exec' } }", "servers.weather.tools.x.safety_tier: not a value for"),
        (SERVER + "tools = { x = { on_doubt = 'retry' } }", "servers.weather.tools.x.on_doubt: not a value for this k"),
        (SERVER + "tools = { x = { honours_key = true } }", "servers.weather.tools.x.honours_key: unknown key: "),
        (SERVER + "key_carriers = 'header'", f"servers.weather.key_carriers: wrong type: {CARRIERS}"),
        (SERVER + "key_carriers = ['body']", f"servers.weather.key_carriers.0: not a value for this key: {CARRIERS}"),
        (
            SERVER + "key_carriers = ['meta', 7]",
            f"servers.weather.key_carriers.1: not a value for this key: {CARRIERS}",
        ),
        (SERVER + "key_carriers = [{}]", f"servers.weather.key_carriers.0: not a value for this key: {CARRIERS}"),
        (SERVER + "key_carriers = [{ argument = '' }]", "servers.weather.key_carriers.0: not a value for this key: w"),
        (SERVER + "key_carriers = [{ argument = 7 }]", "servers.weather.key_carriers.0: not a value for this key: wr"),
        (SERVER + "key_carriers = [{ argument = 'a', b = 1 }]", "servers.weather.key_carriers.0: not a value for thi"),
        (SERVER + "key_carriers = ['meta', 'meta']", "servers.weather.key_carriers: a carrier stands twice: keep one"),
        (
            SERVER + "key_carriers = [{ argument = 'a' }, { argument = 'b' }]",
            "servers.weather.key_carriers: two arguments for one key: keep the one",
        ),
        (SERVER + "honours_key = 1", "servers.weather.honours_key: wrong type: write honours_key = true or honours_k"),
        (
            SERVER + "honours_key = true\nkey_carriers = []",
            f"servers.weather: honours_key = true, and nothing carries a key to this server: {CARRIERS}",
        ),
        (
            "[servers.w]\ncommand = ['x']\nhonours_key = true\nkey_carriers = ['header']",
            f"servers.w: honours_key = true, and nothing carries a key to this server: {CARRIERS}",
        ),
        ("[servers.w]", "servers.w: write one of url = "),
        ("[servers.w]\nurl = 'ftp://h/x'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://a..b/x'", "servers.w.url: the host is no name"),
        (f"[servers.w]\nurl = 'https://{'a' * 64}.example/x'", "servers.w.url: the host is no name"),
        ("[servers.w]\nurl = 'https:///x'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://h:port/x'", "servers.w.url: not a value for this key: write the address of"),
        ("[servers.w]\nurl = 'https://h/a b'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://h/x#y'", "servers.w.url: a URL with a fragment cannot be called"),
        ("[servers.w]\nurl = 'https://u:p@h/x'", "servers.w.url: user and password do not belong in a URL"),
        ("[servers.w]\nurl = 'https://u@h/x'", "servers.w.url: user and password do not belong in a URL"),
        ("[servers.w]\nurl = 'https://a%41/x'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://h\\x'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://[1:2]/x'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://[::1%lo]/'", "servers.w.url: not a value for this key: write the address of its"),
        ("[servers.w]\nurl = 'https://2130706433/x'", "servers.w.url: an IPv4 address is four decimal numbers"),
        ("[servers.w]\nurl = 'https://0x7f.1/x'", "servers.w.url: an IPv4 address is four decimal numbers"),
        ("[servers.w]\nurl = 'https://0177.0.0.1/x'", "servers.w.url: an IPv4 address is four decimal numbers"),
        ("[servers.w]\nurl = 'https://127.0.0.1./x'", "servers.w.url: an IPv4 address is four decimal numbers"),
        ("[servers.w]\nurl = 'https://256.1.1.1/x'", "servers.w.url: an IPv4 address is four decimal numbers"),
        ("[servers.'a b']\nurl = 'https://h/x'", 'servers."a b": not a server id: write 1 to 64 of'),
        ("[servers.list]\nurl = 'https://h/x'", "servers.list: `tools list` is a command: give the server another id"),
        ("[servers.approve]\nurl = 'https://h/x'", "servers.approve: `tools approve` is a command"),
    ],
)
def test_a_fault_names_file_and_key_and_says_what_to_write(faults, text, line):
    (fault,) = faults(text)
    assert fault.startswith(f"s.toml: {line}")


def test_a_process_serves_every_class_and_what_is_in_none_unless_it_is_told_which(settings):
    text = "[worker.classes.slow]\nmax_activities = 3\n[worker.classes.local]\n" + SERVER + "class = 'slow'"
    found = settings(text)
    assert found.worker.served == ("default", "slow", "local")
    assert found.server_classes == {"weather": "slow"}
    assert [one.max_activities for one in found.worker.classes.values()] == [3, 20]
    assert settings("[worker]\nserves = ['slow', 'slow']\n" + text).worker.served == ("slow",)


def test_half_a_build_is_for_the_worker_that_is_of_it_to_refuse_and_hinders_no_other_command(settings):
    found = settings("", {"OPENWOP_MCP__WORKER__DEPLOYMENT": "pack"}).worker
    assert (found.deployment, found.build_id) == ("pack", None)


def test_where_a_table_as_a_whole_is_at_fault_file_and_variables_that_made_it_are_named(settings):
    with pytest.raises(SettingsError) as caught:
        settings("[temporal]\nnamespace = 'n'", {"OPENWOP_MCP__TEMPORAL__SERVER_CA": "/ca.pem"})
    assert "environment variable OPENWOP_MCP__TEMPORAL__SERVER_CA: temporal: server_ca" in str(caught.value)


def test_what_temporal_is_shown_is_read_by_what_connects_to_it(settings):
    text = "[temporal]\ntls = true\nclient_cert = 'c'\nclient_key = { file = '/none' }\napi_key = { env = 'UNSET' }"
    found = settings(text).temporal
    assert (found.client_key.file, found.api_key.env) == ("/none", "UNSET")


def test_a_build_is_told_by_the_environment_as_it_stands(settings):
    named = {"OPENWOP_MCP__WORKER__DEPLOYMENT": "pack", "OPENWOP_MCP__WORKER__BUILD_ID": "0123456"}
    found = settings("", named).worker
    assert (found.deployment, found.build_id, found.versioning) == ("pack", "0123456", None)


KEY = "[[keys]]\nid = 'a'\ntenant = 't'\nsubject = 's'\nscopes = ['*']\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (KEY, 'keys.0: write one of secret = { env = "NAME" }'),
        (
            KEY + f"sha256 = '{'0' * 64}'\nsecret = {{ env = 'OPENWOP_KEY' }}",
            'keys.0: write one of secret = { env = "NAM',
        ),
        (KEY + "sha256 = 'abc'", "keys.0.sha256: not a value for this key: write the SHA-256 of the key"),
        (
            KEY.replace("'*'", "'all'") + f"sha256 = '{'0' * 64}'",
            "keys.0.scopes.0: not a value for this key: write sco",
        ),
        (2 * (KEY + f"sha256 = '{'0' * 64}'\n"), "keys.1.id: another key has this id: give each its own"),
    ],
)
def test_a_fault_of_a_key_names_its_place(faults, text, line):
    (fault,) = faults(text)
    assert fault.startswith(f"s.toml: {line}")


URL = "[host]\nurl = 'https://h.example'\n"
ISSUER = "[[issuers]]\nissuer = 'https://login.example.org'\naudience = 'a'\n"


def test_an_issuer_is_read(settings):
    read = settings(URL + ISSUER + "tenant = 'acme'")
    assert read.host.url == "https://h.example"
    (issuer,) = read.issuers
    assert (issuer.issuer, issuer.audience, issuer.tenant) == ("https://login.example.org", "a", "acme")
    assert (issuer.algorithms, issuer.subject_claim, issuer.max_lifetime) == (("RS256", "ES256"), "sub", 3660)
    assert issuer.allowed_scopes == SCOPES
    assert issuer.model_copy(update={"scopes": ("runs:read",)}).allowed_scopes == ("runs:read",)


@pytest.mark.parametrize(
    ("network", "url", "may"),
    [
        ("public", "https://h/keys", True),
        ("public", "http://h/keys", False),
        ("any", "http://h/keys", False),
        ("private", "http://h/keys", True),
        ("private", "ftp://h/keys", False),
        ("private", "", False),
    ],
)
def test_keys_of_an_issuer_come_over_https_or_from_the_operators_own_network(settings, network, url, may):
    (issuer,) = settings(URL + ISSUER + f"tenant = 'acme'\nnetwork = '{network}'").issuers
    assert issuer.asks(url) is may


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ISSUER + "tenant = 'acme'", "host.url: missing: where there are issuers, write the address that clients know"),
        (URL + ISSUER, 'issuers.0: write one of tenant = "acme" and tenant_claim = "org"'),
        (URL + ISSUER + "tenant = 'a'\ntenant_claim = 'b'", "issuers.0: write one of tenant"),
        (URL + ISSUER + "tenant = 'a'\ntenants = ['a']", "issuers.0: tenants belongs to tenant_claim: take it out"),
        (URL + 2 * (ISSUER + "tenant = 'a'\n"), "issuers.1.issuer: this issuer stands twice: keep one"),
        (URL + ISSUER.replace("https", "http") + "tenant = 'a'", "issuers.0: keys that come over http can be exchange"),
        (URL + ISSUER + "tenant = 'a'\njwks_uri = 'http://h/k'", "issuers.0: keys that come over http can be exchang"),
        (URL + ISSUER.replace(".org", ".org?a=b") + "tenant = 'a'", "issuers.0.issuer: a URL with a query identifies"),
        (
            URL + ISSUER.replace("https://", "") + "tenant = 'a'",
            "issuers.0.issuer: not a value for this key: write its",
        ),
        (URL + ISSUER + "tenant = 'a~b'", "issuers.0.tenant: not a value for this key: write 1 to 128 of A-Z"),
        (URL + ISSUER + "tenant = 'a'\nalgorithms = ['none']", "issuers.0.algorithms.0: not a value for this key: wri"),
        (URL + ISSUER + "tenant = 'a'\nalgorithms = ['HS256']", "issuers.0.algorithms.0: not a value for this key: wr"),
        (URL + ISSUER + "tenant = 'a'\nalgorithms = []", "issuers.0.algorithms: not a value for this key: write algo"),
        (URL + ISSUER + "tenant = 'a'\nmax_lifetime = 30", "issuers.0.max_lifetime: not a value for this key: write a"),
        (URL + ISSUER + "tenant = 'a'\nscopes = ['all']", "issuers.0.scopes.0: not a value for this key: write scopes"),
        (URL.replace(".example", ".example/?a") + ISSUER + "tenant = 'a'", "host.url: a URL with a query identifies"),
    ],
)
def test_a_fault_of_an_issuer_names_its_place(faults, text, line):
    (fault,) = faults(text)
    assert fault.startswith(f"s.toml: {line}")


TOKEN_KEY = "[[host.token_keys]]\nid = '{}'\nsecret = {{ env = 'SIGNING' }}\n"


def test_the_keys_of_links_and_the_secret_of_callbacks_are_read(settings):
    text = URL + "callback_secret = { env = 'SIGNING' }\n" + TOKEN_KEY.format("new") + TOKEN_KEY.format("old")
    host = settings(text, {"SIGNING": "s" * 32}).host
    assert [key.id for key in host.token_keys] == ["new", "old"]
    assert (host.token_lifetime, host.callback_network) == (1800, "public")
    assert host.callback_secret is not None
    assert host.callback_secret.reveal({"SIGNING": "s" * 32}) == "s" * 32


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[host]\ncallback_secret = { env = 'SIGNING' }",
            "host: a notification says where to answer: write url as wel",
        ),
        (URL + "callback_secret = { env = 'SHORT' }", "host.callback_secret: the secret has under 32 characters"),
        (URL + f"callback_secret = '{'s' * 40}'", "host.callback_secret: "),
        (URL + "callback_network = 'all'", "host.callback_network: not a value for this key"),
        (URL + "token_lifetime = 59", "host.token_lifetime: not a value for this key"),
        (TOKEN_KEY.format("host"), "host: 'host' is what the key of the hosts themselves is called"),
        (TOKEN_KEY.format("a") * 2, "host: two of token_keys have the same id"),
        (TOKEN_KEY.format("a.b"), "host.token_keys.0.id: not a value for this key: write a name for the key"),
        (TOKEN_KEY.format("a").replace("SIGNING", "SHORT"), "host.token_keys.0.secret: the secret has under 32"),
        (TOKEN_KEY.format("a").replace("SIGNING", "UNSET"), "host.token_keys.0.secret: the environment variable UNSET"),
    ],
)
def test_a_fault_of_what_signs_names_its_place(faults, text, line):
    (fault,) = faults(text, {"SIGNING": "s" * 32, "SHORT": "s" * 31})
    assert fault.startswith(f"s.toml: {line}")


def test_all_faults_are_told_at_once_each_on_its_line(faults):
    text = "[worker]\ntenant = 5\nhello = 1\n[servers.w]\nnetwork = 'x'\n" + KEY + "secret = { env = 'UNSET' }\n" + KEY
    lines = faults(text, {"OPENWOP_MCP__HOST__BIND": "nowhere"})
    assert [line.split(": ")[1] for line in lines] == [
        "keys.1.id",
        "worker.tenant",
        "worker.hello",
        "host.bind",
        "keys.1",
        "servers.w.network",
    ]


def test_a_worker_needs_no_key_of_the_hosts(settings):
    (key,) = settings(KEY + "secret = { env = 'UNSET' }").keys
    assert key.secret.env == "UNSET"


def test_a_key_with_control_characters_stays_on_its_line(faults):
    (fault,) = faults('[worker]\n"a\\nb\\u001b[2J\\u202e" = 1')
    assert fault.startswith("s.toml: worker.")
    assert fault.isprintable()


# --- credentials ---

CANARY = "sk-CANARY-0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"credential = '{CANARY}'", "servers.weather.credential"),
        (f"credential = 'Bearer {CANARY}'", "servers.weather.credential"),
        (f"credential = ['{CANARY}']", "servers.weather.credential"),
        (f"credential = {{ bearer = '{CANARY}' }}", "servers.weather.credential.bearer"),
        (f"credential = {{ header = '{CANARY}' }}", "servers.weather.credential.header"),
        (f"credential = {{ token = '{CANARY}' }}", "servers.weather.credential.token"),
        (f"credential = {{ bearer = {{ value = '{CANARY}' }} }}", "servers.weather.credential.bearer.value"),
        (f"credential = {{ header = {{ name = 'X-Key', value = '{CANARY}' }} }}", "servers.weather.credential.header"),
        (f"credential = {{ header = {{ X-Api-Key = '{CANARY}' }} }}", "servers.weather.credential.header.X-Api-Key"),
        (f"bearer = '{CANARY}'", "servers.weather.bearer"),
        (f"token = '{CANARY}'", "servers.weather.token"),
        (f"api_key = '{CANARY}'", "servers.weather.api_key"),
        (f"password = '{CANARY}'", "servers.weather.password"),
        (f"headers = {{ Authorization = 'Bearer {CANARY}' }}", "servers.weather.headers"),
    ],
)
def test_a_credential_in_the_file_is_refused_in_every_spelling_and_not_repeated(faults, text, key):
    lines = faults(SERVER + text)
    assert any(line.startswith(f"s.toml: {key}") for line in lines)
    assert 'env = "NAME"' in "\n".join(lines)
    assert "CANARY" not in "\n".join(lines)


def test_a_credential_in_the_value_of_a_variable_is_refused_too(faults):
    (line,) = faults(SERVER, {"OPENWOP_MCP__SERVERS__WEATHER__CREDENTIAL__BEARER": CANARY})
    assert line.startswith(
        "environment variable OPENWOP_MCP__SERVERS__WEATHER__CREDENTIAL__BEARER: servers.weather.cred"
    )
    assert "CANARY" not in line


@pytest.mark.parametrize(
    "text",
    [
        f"url = '{CANARY}'",
        f"url = 'https://user:{CANARY}@h/x'",
        f"network = '{CANARY}'",
        f"tenants = ['{CANARY} ']",
        f"tenants = '{CANARY}'",
        f"timeouts = '{CANARY}'",
        f"timeouts = {{ connect = '{CANARY}' }}",
        f"retry = {{ attempts = '{CANARY}' }}",
        f"tools = {{ x = '{CANARY}' }}",
        f"tools = {{ x = {{ egress = '{CANARY}' }} }}",
        f"credential = {{ bearer = {{ env = '{CANARY}' }} }}",
        f"credential = {{ bearer = {{ env = '{CANARY.replace('-', '').upper()}' }} }}",
        f"credential = {{ bearer = {{ file = '{CANARY}' }} }}",
        f"credential = {{ header = {{ name = '{CANARY} ', value = {{ env = 'OPENWOP_KEY' }} }} }}",
        f"url = {CANARY}",
        f"url = '{CANARY}",
        f"url = '''\n{CANARY.replace('-', '')}==\n''' x",
        f"url = 'a'\nurl = '{CANARY}'",
        f"unknown = '{CANARY}'",
    ],
)
def test_no_message_repeats_a_value(faults, text):
    lines = faults(f"[servers.w]\n{text}")
    assert lines
    assert "canary" not in "\n".join(lines).lower()


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (None, "the environment variable WEATHER_TOKEN is not set"),
        ("", "the environment variable WEATHER_TOKEN is not set"),
        ("short", "the secret has under 8 characters"),
        ("with a line\nbreak", "the secret holds characters that a header"),
        ("trailing space ", "the secret holds characters that a header"),
        ("schlüssel-wort", "the secret holds characters that a header"),
    ],
)
def test_a_secret_that_cannot_be_used_is_a_fault_at_start(tmp_path, secret, words):
    file = tmp_path / "s.toml"
    file.write_text(SERVER + 'credential = { bearer = { env = "WEATHER_TOKEN" } }', encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(str(file), environ={} if secret is None else {"WEATHER_TOKEN": secret})
    assert f"servers.weather.credential.bearer: {words}" in str(caught.value)
    if secret:
        assert secret not in str(caught.value)


def test_a_secret_in_a_file_is_read_without_its_last_line_break(settings, tmp_path):
    (tmp_path / "token").write_text("a-token-in-a-file\n", encoding="utf-8")
    read = settings(SERVER + f"credential = {{ bearer = {{ file = '{tmp_path}/token' }} }}")
    assert read.servers["weather"].credential.as_header({}) == ("Authorization", "Bearer a-token-in-a-file")


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (b"\xff", "not a text file"), (b"", "under 8")])
def test_a_file_that_gives_no_secret_is_a_fault(faults, tmp_path, content, words):
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    (line,) = faults(SERVER + f"credential = {{ bearer = {{ file = '{tmp_path}/token' }} }}")
    assert line.startswith("s.toml: servers.weather.credential.bearer: ")
    assert words in line


def test_a_header_of_its_own_carries_a_credential(settings):
    text = SERVER + "credential = { header = { name = 'X-Api-Key', value = { env = 'WEATHER_TOKEN' } } }"
    credential = settings(text).servers["weather"].credential
    assert credential.as_header(SECRETS) == ("X-Api-Key", SECRETS["WEATHER_TOKEN"])


@pytest.mark.parametrize("name", ["Mcp-Method", "Content-Type", "host"])
def test_a_header_that_the_transport_writes_carries_no_credential(faults, name):
    (line,) = faults(SERVER + f"credential = {{ header = {{ name = '{name}', value = {{ env = 'WEATHER_TOKEN' }} }} }}")
    assert line.startswith("s.toml: servers.weather.credential.header.name: the transport writes this header itself")


@pytest.mark.parametrize(
    "text",
    [
        "credential = {}",
        "credential = { bearer = {} }",
        "credential = { bearer = { env = 'WEATHER_TOKEN', file = 'x' } }",
        "credential = { bearer = { env = 'WEATHER_TOKEN' }, header = { name = 'X', value = { env = 'OPENWOP_KEY' } } }",
    ],
)
def test_exactly_one_source_and_one_kind_of_credential_is_given(faults, text):
    (line,) = faults(SERVER + text)
    assert "write one of" in line


def test_no_representation_of_settings_holds_a_secret(settings):
    read = settings(WHOLE)
    shown = repr(read) + str(read) + read.model_dump_json()
    assert not [secret for secret in SECRETS.values() if secret in shown]


def test_a_secret_that_goes_away_later_is_told_without_its_value(settings):
    credential = settings(WHOLE).servers["weather"].credential
    with pytest.raises(SettingsError, match="WEATHER_TOKEN is not set"):
        credential.as_header({})


def test_what_never_talks_to_a_server_needs_no_secrets(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(SERVER + 'credential = { bearer = { env = "NOT_SET" } }\n', encoding="utf-8")
    assert load(str(file), environ={}, secrets=False).servers["weather"].credential is not None
    with pytest.raises(SettingsError, match="NOT_SET"):
        load(str(file), environ={})


def test_a_programs_variable_may_be_short_and_of_several_lines(settings):
    text = "[servers.notes]\ncommand = ['notes']\nenvironment = { LEVEL = { env = 'LEVEL' }, KEY = { env = 'KEY' } }"
    given = {"LEVEL": "on", "KEY": "first\nsecond"}
    environment = settings(text, given).servers["notes"].environment
    assert {name: ref.reveal(given) for name, ref in environment.items()} == given
