"""Attacks on a real server: each is refused, in one sentence of JSON, and the page goes on as before."""

import pytest

from normmatch.app.guard import HEADERS
from normmatch.app.serving import Listening
from normmatch.errors import LONGEST
from tests.app import attacks_by_body, attacks_by_head
from tests.app.attack import Attack
from tests.app.client import head, talk

ATTACKS = [*attacks_by_head.ATTACKS, *attacks_by_body.ATTACKS]


def test_there_are_enough() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 60


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_it_is_refused(page_server: Listening, attack: Attack, capfd: pytest.CaptureFixture[str]) -> None:
    reply = talk(page_server.door.port, attack.data(page_server.door.port))
    assert str(reply.status) in attack.statuses.split(), reply
    if reply.status:
        assert reply.json.keys() == {"error"}
        assert 10 < len(reply.error) <= LONGEST
        assert reply.error.endswith(".")
        assert not any(secret in reply.error for secret in ("\n", "Traceback", "/tmp", "root:", ".py"))
        assert reply.headers["content-type"] == "application/json"
        assert "server" not in reply.headers
        assert "access-control-allow-origin" not in reply.headers
        assert {name.decode(): value.decode() for name, value in HEADERS.items()}.items() <= reply.headers.items()
    assert capfd.readouterr() == ("", "")  # and the log is not filled
    assert talk(page_server.door.port, head(page_server.door.port)).status == 200
