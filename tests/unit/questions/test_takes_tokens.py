"""Which questions a link may answer."""

from __future__ import annotations

import pytest

from openwop_mcp.questions.eligibility import takes_tokens


@pytest.mark.parametrize(
    ("payload", "config", "takes"),
    [
        (b'{"data":{"title":"x"}}', b"{}", True),
        (b'{"data":{"approversList":["a"]}}', b"{}", False),
        (b'{"data":{"approversList":[]}}', b"{}", False),
        (b'{"data":{"approversList":"[REDACTED]"}}', b"{}", False),
        (b'{"data":{}}', b'{"profile":"openwop-interrupt-auth-required"}', False),
        (b'{"data":{}}', b'{"profile":"openwop-interrupt-quorum"}', True),
        (b'{"data":"[REDACTED]"}', b"{}", True),
        (b"{}", b"{}", True),
    ],
)
def test_a_link_answers_where_it_need_not_be_known_who_does(payload, config, takes):
    assert takes_tokens(payload, config) is takes
