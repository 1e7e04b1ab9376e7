"""Of this machine: store, spool, secrets, ports, the GPU driver, alerts, Slurm."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from trainvitals.alerts.address import AddressError, Endpoint, allowed_addresses, endpoint
from trainvitals.alerts.secret import credentials
from trainvitals.alerts.targets.registry import target_of
from trainvitals.clock import Clock
from trainvitals.control.sharing import name_of_user
from trainvitals.doctor import places
from trainvitals.doctor.check import Checkup, Finding, fault, ok, warning
from trainvitals.errors import TrainvitalsError
from trainvitals.settings import Settings
from trainvitals.store.open import SCHEME, is_remote, open_store
from trainvitals.store.sqlite_connection import refuse_network_file_system

#: Settings that name files which hold no secret.
NO_SECRETS = frozenset({"ca_file", "signal_pid_file"})
MAX_ANSWER_BYTES = 4096
SLURM_COMMANDS = ("sinfo", "squeue", "scontrol", "sbatch", "srun")


def checkups(settings: Settings, clock: Clock, checkout: Path, deadline_s: float) -> list[Checkup]:
    """All that belong to no run. checkout: where ``collectors`` lies. deadline_s: for the child that asks the driver."""
    return [
        Checkup("store", "", lambda: store(settings)),
        Checkup("spool", "", lambda: spool(settings, clock)),
        Checkup("secrets", "", lambda: secrets(settings)),
        Checkup("port", "", lambda: port(settings)),
        Checkup("gpu", "", lambda: gpu(settings, checkout, deadline_s)),
        Checkup("alerts", "", lambda: alerts(settings)),
        Checkup("slurm", "", lambda: slurm(settings)),
    ]


def store(settings: Settings) -> Iterator[Finding]:
    """Does it answer, may this user write to it, and is it on a disk that SQLite can trust."""
    if not is_remote(settings.store):
        path = Path(settings.store.removeprefix(SCHEME))
        refuse_network_file_system(path)
        if not path.exists():
            yield from _will_be_made(path)
            return
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            yield warning(
                f"{name_of_user(os.geteuid())} may only read {path}", "watch must write it; for the dashboard it is right."
            )
    opened = open_store(settings.store, read_only=True, influxdb=settings.influxdb)
    try:
        health = opened.health()
        if not health.is_reachable:
            yield fault(f"{settings.store.rpartition('@')[2]}: {health.text}", "python -m trainvitals store check says more.")
            return
        yield ok(f"{health.flavour} {health.version} answers. {health.text}".strip())
        opened.events("", ("watch",), 0, 1)
    except TrainvitalsError as error:
        yield fault(f"it answers, and cannot be read: {error}", "python -m trainvitals store check says more.")
    finally:
        opened.close()


def _will_be_made(path: Path) -> Iterator[Finding]:
    above = path.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if os.access(above, os.W_OK | os.X_OK):
        yield ok(f"{path} is made by the first program that writes to it")
    else:
        yield fault(
            f"{path} cannot be made: {name_of_user(os.geteuid())} may not write into {above}", "name another place in store."
        )


def spool(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Where points wait for a server that is away."""
    if not is_remote(settings.store):
        yield ok("not needed: the embedded store is on this machine")
        return
    path = settings.spool_directory
    if not path.is_dir():
        yield from _will_be_made(path / "spool.db")
        return
    probed = places.probe(path)
    if probed.error:
        yield fault(f"{path} takes no file: {probed.error}", "name another directory in [spool] dir, on a local disk.")
        return
    if places.file_system(path).startswith("network"):
        yield fault(
            f"{path} is on a file system that is {places.file_system(path)}", "name a directory on a local disk in [spool] dir."
        )
    told = os.statvfs(path)
    if told.f_bavail * told.f_frsize < settings.spool.max_bytes:
        yield warning(
            f"{path} has room for {told.f_bavail * told.f_frsize:,} bytes, one spool may need {settings.spool.max_bytes:,}",
            "make room, or lower [spool] max_bytes.",
        )
    yield from places.of_probe(path, probed, clock.time_ns() / 1e9)
    yield ok(f"{path}, {places.file_system(path)}")


def secrets(settings: Settings) -> Iterator[Finding]:
    """Each file that the settings name for a secret can be read by this user, and not by everyone."""
    named = list(secret_files(settings))
    for key, path in named:
        try:
            found = path.stat()
        except OSError as error:
            yield fault(f"{key}: {path} cannot be read: {error.strerror}", "put the file back, or name another one.")
            continue
        if not stat.S_ISREG(found.st_mode) or not os.access(path, os.R_OK):
            yield fault(
                f"{key}: {path} cannot be read by {name_of_user(os.geteuid())}", "give it to this user: chmod 600, chown."
            )
        elif found.st_mode & stat.S_IRWXO:
            yield warning(f"{key}: everyone on this machine may read {path}", f"chmod o-rwx {path}")
        elif not found.st_size:
            yield fault(f"{key}: {path} is empty", "write the secret there and nothing else.")
        else:
            yield ok(f"{key}: {path}")
    if not named:
        yield ok("no file is named for one")


def secret_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """(key, file) of every setting whose name ends in ``_file`` or ``_files`` and that is set."""
    tables = [(field.name, getattr(settings, field.name)) for field in fields(settings)]
    tables += [(f"alerts.targets.{name}", target) for name, target in settings.alert_targets.items()]
    for name, table in tables:
        for field in fields(table) if is_dataclass(table) else ():
            if field.name.endswith(("_file", "_files")) and field.name not in NO_SECRETS:
                value = getattr(table, field.name)
                for path in (value,) if isinstance(value, str) else value:
                    if path:
                        yield f"[{name}] {field.name}", settings.resolve(path)


def port(settings: Settings) -> Iterator[Finding]:
    """The dashboard's: free, or answered by a dashboard."""
    number = settings.dashboard.port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except PermissionError:
            yield fault(f"this user may not listen on port {number}", "set port under [dashboard] to one above 1023.")
            return
        except OSError:
            pass
        else:
            yield ok(f"{number} is free")
            return
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{number}/healthz", timeout=5) as answer:
            told = answer.read(MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        told = error.read(MAX_ANSWER_BYTES)
    except (OSError, ValueError):
        told = b""
    if _is_ours(told):
        yield ok(f"a dashboard answers on {number}")
    else:
        yield warning(f"another program listens on port {number}", "end it, or set port under [dashboard].")


def _is_ours(answer: bytes) -> bool:
    try:
        told = json.loads(answer)
    except ValueError:
        return False
    return isinstance(told, dict) and "snapshot_age_s" in told


def gpu(settings: Settings, checkout: Path, deadline_s: float) -> Iterator[Finding]:
    """One poll of the collector, in a process of its own: the driver hangs rather than fails."""
    if not settings.gpu.enabled:
        yield ok("[gpu] enabled = false")
        return
    if not (checkout / "collectors").is_dir():
        yield ok("no collectors here: they run from a checkout or the image, on the machines that have GPUs")
        return
    command = [sys.executable, "-m", "collectors", "gpu", "--once", "--stdout"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=checkout
    ) as child:
        try:
            out, said = child.communicate(timeout=max(1.0, deadline_s * 0.8))
        except subprocess.TimeoutExpired:
            # Told before the child is waited for: one that hangs in the driver cannot be killed either.
            yield fault(
                "the driver did not answer", "look at dmesg for XID; nvidia-smi may hang, too. Drain the node before a restart."
            )
            child.kill()
            return
    rows = list(_records(out))
    gpus = [row for row in rows if row.get("measurement") == "gpu"]
    told = "".join(f"{text}; " for row in rows if row.get("measurement") == "node" and (text := _text_of(row)))
    sentence = told.rstrip("; ") or said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if child.returncode == 0 and gpus:
        yield ok(f"the driver answers: {len(gpus)} GPUs{': ' if sentence else ''}{sentence[:300]}")
    else:
        yield warning(
            f"no GPU was read here{': ' if sentence else ''}{sentence[:300]}",
            "right on a machine without GPUs: set [gpu] enabled = false there; else look at nvidia-smi.",
        )


def _records(output: bytes) -> Iterator[dict[str, Any]]:
    for line in output.splitlines()[:10_000]:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # a library's own words between the records
        if isinstance(row, dict):
            yield row


def _text_of(row: Mapping[str, Any]) -> str:
    fields_of_row = row.get("fields")
    return str(fields_of_row.get("text") or "") if isinstance(fields_of_row, dict) else ""


def alerts(settings: Settings) -> Iterator[Finding]:
    """Targets as they are set, without sending anything: ``alert test TARGET`` sends."""
    if not settings.alert_targets:
        yield warning("no target is configured: nobody is told of anything", "add [alerts.targets.NAME]: docs/alerts.md.")
    for name, target in settings.alert_targets.items():
        try:
            held = credentials(settings, name)
            if target.kind != "apprise" and (held.url or target.kind != "pagerduty"):
                _of_this_network(endpoint(held.url.reveal(), f"the address of {name}"), allow_private=target.allow_private)
            if target_of(target).needs_secret and not held.secrets:
                raise AddressError("it has no secret, and needs one; name its file in secret_files.", is_final=True)
        except (TrainvitalsError, AddressError) as error:
            yield fault(f"{name}: {error}", f"then: python -m trainvitals alert test {name}")
        else:
            yield ok(
                f"{name} ({target.kind}): {', '.join(target.severities)}; to try it: python -m trainvitals alert test {name}"
            )
    if settings.alert_targets and not any("critical" in target.severities for target in settings.alert_targets.values()):
        yield warning("no target is told of critical findings", 'add "critical" to severities of the one that pages.')


def _of_this_network(where: Endpoint, *, allow_private: bool) -> None:
    """What can be told without asking a name server. Raises ``AddressError``."""
    host = "127.0.0.1" if where.host == "localhost" else where.host
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return
    allowed_addresses(where, 1.0, allow_private=allow_private, resolve=lambda *_: [host])


def slurm(settings: Settings) -> Iterator[Finding]:
    """The commands that the supervisor's road needs."""
    if settings.supervisor.slurm == "off":
        yield ok("[supervisor] slurm = off")
        return
    missing = [command for command in SLURM_COMMANDS if shutil.which(command) is None]
    if missing:
        yield fault(f"not found: {', '.join(missing)}", "install the Slurm client here, or set [supervisor] slurm = off.")
    else:
        yield ok(f"[supervisor] slurm = {settings.supervisor.slurm}; the commands are there")
