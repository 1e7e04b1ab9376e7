"""The same in Chinese, as the people on call say it. Terms: the operations handbook's table (先数据、再代码、后集群).

Fields as in ``sentences``; {since} = "第 48,210 步起" or nothing, {at} = "第 48,210 步", {after} = "在第 48,210 步之后".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from trainvitals.alerts.notice import NoticeKind, Verb

VERBS: Mapping[Verb, str] = MappingProxyType(
    {
        Verb.STOPPED: "训练中断", Verb.HUNG: "训练卡死", Verb.PAUSED: "训练已暂停", Verb.TRAINING_SICK: "训练异常",
        Verb.TRAINING_SLOW: "训练变慢", Verb.CHECK: "待检查", Verb.RECOVERED: "已恢复", Verb.STILL_OPEN: "仍有异常", Verb.SUMMARY: "告警汇总", Verb.TEST: "测试消息",
    }
)  # fmt: skip

KINDS: Mapping[NoticeKind, str] = MappingProxyType(
    {
        NoticeKind.OPENED: "新告警", NoticeKind.ESCALATED: "升级为严重", NoticeKind.REOPENED: "再次发生", NoticeKind.REMINDER: "仍未恢复，无人认领",
        NoticeKind.ACKNOWLEDGED: "已认领", NoticeKind.RECOVERED: "已恢复", NoticeKind.PAUSED: "已自动暂停", NoticeKind.WATCH_SILENT: "监控失联",
        NoticeKind.NOT_DELIVERED: "告警未送达", NoticeKind.SUMMARY: "汇总", NoticeKind.TEST: "测试",
    }
)  # fmt: skip

SEVERITIES: Mapping[str, str] = MappingProxyType({"critical": "严重", "warning": "警告", "info": "提示"})
GROUPS: Mapping[str, str] = MappingProxyType({"data": "数据", "code": "代码", "cluster": "集群"})
LEVELS: Mapping[str, str] = MappingProxyType(
    {"presence": "文件齐全", "structure": "结构校验通过", "content": "内容校验通过", "load": "已实际加载验证"}
)

SENTENCES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "loss_nonfinite": ("", "", "{since} loss 出现 NaN/Inf"),
        "loss_outlier": ("{at} loss 单点偏高（{expected} → {value}）", "", "{at} loss 单点偏高"),
        "loss_spike": ("{since} loss 突增，{expected} → {value}", "", "{since} loss 突增"),
        "loss_divergence": ("{since} loss 发散，{expected} → {value}，未回落", "", "{since} loss 发散，未回落"),
        "loss_level_shift": ("{since} loss 整体抬升，{expected} → {value}", "", "{since} loss 整体抬升"),
        "loss_drift": ("{since} loss 缓慢上漂，{expected} → {value}", "", "{since} loss 缓慢上漂"),
        "loss_plateau": ("{since} loss 停滞，未优于 {expected}", "", "{since} loss 停滞不降"),
        "loss_not_learning": ("loss 仍为 {value}（起始 {expected}），模型没有在学习", "", "模型没有在学习，loss 不降"),
        "loss_implausible_drop": ("{at} loss 骤降，{expected} → {value}，降得不合常理", "", "{at} loss 骤降，不合常理"),
        "loss_frozen": ("", "{since} loss 恒为 {value}，不再变化", "{since} loss 不再变化"),
        "validation_nonfinite": ("", "", "{at} 验证集 loss 出现 NaN/Inf"),
        "validation_rise": ("{since} 验证集 loss 上升，{expected} → {value}", "", "{since} 验证集 loss 上升"),
        "validation_missing": ("", "", "{since} 没有新的验证集 loss"),
        "resume_rebound": ("{at} 恢复训练后 loss 反弹，{expected} → {value}", "", "{at} 恢复训练后 loss 反弹"),
        "resume_drop": ("{at} 恢复训练后 loss 偏低，{expected} → {value}，是否重复喂了数据？", "", "{at} 恢复训练后 loss 偏低"),
        "resume_config_changed": ("", "{at} 恢复训练后有 {count} 项配置与上次不同", "{at} 恢复训练后配置与上次不同"),
        "resume_lr_mismatch": ("{at} 恢复后学习率 {value}，同一步原为 {expected}", "", "{at} 恢复后学习率与原来不一致"),
        "lr_schedule_mismatch": ("{at} 学习率 {value}，计划应为 {expected}", "", "{at} 学习率与 LR schedule 不符"),
        "grad_norm_spike": ("{since} 梯度范数突增，{expected} → {value}", "", "{since} 梯度范数突增"),
        "grad_norm_nonfinite": ("", "", "{since} 梯度范数出现 NaN/Inf，loss 正常"),
        "throughput_drop": ("{since} 吞吐低于平时 {percent}", "", "{since} 吞吐下降"),
        "rank_loss_mismatch": ("", "", "{since} 多卡 loss 不一致"),
        "straggler": ("", "", "{since} 有 rank 拖慢全体（慢节点）"),
        "rank_silent": ("", "{since} 有 {count} 个 rank 无上报", "{since} 有 rank 无上报"),
        "stall": ("{since} 已 {time} 没有新的训练步（平时 {usual_time}）", "{since} 已 {time} 没有新的训练步", "{since} 没有新的训练步"),
        "run_dead": ("", "", "训练进程{after}退出"),
        "run_dead_holding_nodes": ("", "", "训练进程{after}退出，仍占着节点"),
        "restart_failed": ("", "", "{after} 不再自动重启"),
        "restart_loop": ("", "", "{at} 反复重启、反复退出"),
        "time_limit_near": ("", "", "{at} 作业即将到达时间上限"),
        "nccl_timeout": ("", "", "{after} NCCL 通信超时"),
        "out_of_memory": ("", "", "{after} 显存或内存耗尽（OOM）"),
        "storage_filling": ("", "", "{at} 存储空间即将写满"),
        "pause_not_honoured": ("", "", "{at} 要求暂停，训练未暂停"),
        "checkpoint_corrupt": ("", "", "{at} checkpoint 不完整或已损坏"),
        "checkpoint_no_optimizer": ("", "", "{at} 最新 checkpoint 缺失 optimizer state"),
        "checkpoint_stuck": ("{at} checkpoint 保存已 {time} 未完成（平时 {usual_time}）", "", "{at} checkpoint 保存未完成"),
        "checkpoint_overdue": ("已 {count} 步没有保存 checkpoint（平时每 {usual_count} 步）", "", "{at} 长时间没有保存 checkpoint"),
        "checkpoint_blocking": ("", "", "{since} 保存 checkpoint 阻塞训练"),
        "checkpoint_too_few_verified": ("", "仅剩 {count} 个通过校验的 checkpoint", "通过校验的 checkpoint 过少"),
        "checkpoint_safe_expiring": ("", "", "安全 checkpoint（{at}）即将被训练程序删除"),
        "resume_behind": ("", "", "{at} 没有从最新可用的 checkpoint 恢复"),
        "breaker_alert": ("", "", "{at} 连续多步 loss 异常"),
        "breaker_trip": ("", "", "{at} 触发熔断条件"),
        "telemetry_lost": ("", "", "{since} 监控数据缺失"),
        "alert_not_delivered": ("", "", "有告警目标收不到消息"),
        "": ("", "", "这是一条测试消息，收到即说明通道正常"),
        "watch_silent": ("", "", "该任务的监控进程失联，目前无人值守"),
    }
)  # fmt: skip

#: Rule of no sentence of its own, by how its name begins.
FAMILIES: Mapping[str, str] = MappingProxyType(
    {"node_": "{at} 节点异常", "gpu_": "{at} GPU 异常", "checkpoint_": "{at} checkpoint 异常"}
)
OTHER = "{at} 规则 {rule} 触发"

#: Symptom of the triage table (``incidents.symptoms``) -> (first suspect, what to look at).
SYMPTOMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "loss jumps or diverges": ("数据问题", "检查最近数据批次：重复、异常 token、清洗规则误杀"),
        "loss does not come down": ("学习率或数据配比", "检查 LR schedule、数据混合配比"),
        "loss rebounds after a restart": ("checkpoint 缺失 optimizer state", "确认恢复时含优化器状态且已加载"),
        "settings changed at a restart": ("配置或代码变更", "逐项核对与上次启动不同的配置、代码与库版本"),
        "ranks disagree on the loss": ("通信或并行配置", "检查 DDP/TP 配置、NCCL 拓扑，比对异常 rank 所在节点"),
        "occasional NaN": ("数值稳定性", "检查 AMP、梯度裁剪、BF16 溢出与 loss scale"),
        "no steps, or slow steps": ("集群", "定位落后的 rank、所在节点及日志，再查网络与存储"),
        "the trainer ended": ("集群", "查看训练日志末尾及所在节点的记录：内存不足、Xid、调度系统主动结束"),
        "a checkpoint cannot be trusted": ("存储故障或保存被中断", "查看校验不通过的原因、剩余空间与保存日志，保留最近一个已校验的"),
        "saves are late, hang or block": ("存储", "检查剩余空间与配额、文件系统速度、保存日志，确认是否有 rank 没有写"),
        "a start does not go on where it could": ("指针文件或启动配置", "确认实际加载了哪个 checkpoint：指针文件、启动脚本的加载路径、未完成保存的标记"),
        "the safe checkpoint is about to go": ("训练程序的保留策略", "先复制该 checkpoint，或用 control pause --no-save 暂停且不保存"),
        "a checkpoint without optimizer state": ("保存配置", "检查 save_only_model、--no-save-optim 等选项最近是否改动"),
    }
)  # fmt: skip

#: What to look at in each layer when nothing is known of this very incident.
CHECKS: Mapping[str, str] = MappingProxyType(
    {
        "data": "检查最近数据批次：重复、异常 token、清洗规则误杀",
        "code": "检查最近的重启、配置与代码变更、LR schedule、数值稳定性（AMP、梯度裁剪）",
        "cluster": "检查节点与网络：Xid、ECC、IB 链路、降频，以及日志里的 NCCL 报错",
    }
)

#: Rule of a summary -> what it sums up.
SUMMARIES: Mapping[str, str] = MappingProxyType(
    {"summary_quiet": "免打扰时段内", "summary_flood": "短时间内告警过多，", "summary_healed": "已自行恢复、无需处理的"}
)

LABELS: Mapping[str, str] = MappingProxyType(
    {
        "what": "现象", "value": "数值", "since": "时间", "first": "第一嫌疑", "order": "排查顺序", "safe": "安全 checkpoint", "cost": "代价",
        "breaker": "熔断", "control": "训练状态", "rules": "规则", "acknowledged": "认领人", "runbook": "处理手册", "audit": "审计链头",
        "severity": "级别", "items": "明细", "still_open": "仍未恢复", "over": "已结束",
    }
)  # fmt: skip


def duration(seconds: float) -> str:
    """``45 秒``, ``4 分 12 秒``, ``15 分钟``, ``3 小时 5 分``, ``2 天 4 小时``"""
    if not math.isfinite(seconds):
        return "?"
    rest = max(0, round(seconds))
    if rest < 60:
        return f"{rest} 秒"
    if rest < 3600:
        return f"{rest // 60} 分 {rest % 60} 秒" if rest < 600 and rest % 60 else f"{rest // 60} 分钟"
    if rest < 48 * 3600:
        return f"{rest // 3600} 小时" + (f" {rest % 3600 // 60} 分" if rest % 3600 // 60 else "")
    return f"{rest // 86400} 天" + (f" {rest % 86400 // 3600} 小时" if rest % 86400 // 3600 else "")
