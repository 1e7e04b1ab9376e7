"""Signatures: vectors computed by others, and what a secret may be."""

from __future__ import annotations

import base64
import pickle

import pytest

from trainvitals.alerts.secret import Secret
from trainvitals.alerts.signing import dingtalk, feishu, standard_webhooks, webhook_key
from trainvitals.errors import SettingsError


def test_the_signature_of_feishu_is_that_of_a_known_example():
    assert feishu(Secret("SEC"), 1_700_000_000) == "yKzlnG5gJbbUvULgjP0QN/V99n1fNH31XG8Rrvl9pfk="


def test_the_signature_of_dingtalk_is_that_of_a_known_example_and_encoded_once():
    assert dingtalk(Secret("SEC"), 1_700_000_000_000) == "r%2B2we0q01lkZqz38LA5IPNbHN81U1leRf3Au4PSQb6Q%3D"


def test_the_signature_of_a_webhook_is_that_of_the_specification():
    # standard-webhooks, spec/standard-webhooks.md and the tests of its libraries.
    secret = Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = standard_webhooks([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_short", "no base64 !", "whsec_" + base64.b64encode(bytes(65)).decode()])
def test_a_secret_that_is_none_is_refused_without_being_shown(text):
    with pytest.raises(SettingsError, match="24 to 64") as caught:
        webhook_key(Secret(text))
    assert len(text) < 10 or text not in str(caught.value)


def test_nothing_shows_a_secret():
    secret = Secret("very-secret")
    shown = f"{secret} {secret!r} {[secret]} {secret!s}"
    assert "very-secret" not in shown
    with pytest.raises(TypeError, match="not written down"):
        pickle.dumps(secret)
