"""The kinds of targets by name."""

from __future__ import annotations

from trainvitals.alerts.targets.apprise import Apprise
from trainvitals.alerts.targets.dingtalk import DingTalk
from trainvitals.alerts.targets.feishu import Feishu
from trainvitals.alerts.targets.pagerduty import PagerDuty
from trainvitals.alerts.targets.protocol import Target
from trainvitals.alerts.targets.slack import Slack
from trainvitals.alerts.targets.webhook import Webhook
from trainvitals.alerts.targets.wecom import WeCom
from trainvitals.errors import SettingsError
from trainvitals.settings import TargetSettings


def target_of(settings: TargetSettings) -> Target | Apprise:
    """Raises ``SettingsError`` for a kind that is none."""
    match settings.kind:
        case "webhook":
            return Webhook()
        case "slack":
            return Slack(settings.language)
        case "feishu" | "lark":
            return Feishu(settings.language)
        case "dingtalk":
            return DingTalk()
        case "wecom":
            return WeCom()
        case "pagerduty":
            return PagerDuty()
        case "apprise":
            return Apprise()
    raise SettingsError(f"{settings.kind[:40]!r} is no kind of target.")
