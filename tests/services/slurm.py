"""A real Slurm for tests: slurmctld and three slurmd on loopback, without munge, for the user that runs the tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.services.influx_server import free_port, stop

PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"])
SLURMCTLD = shutil.which("slurmctld", path=PATHS)
SLURMD = shutil.which("slurmd", path=PATHS)
NODES = ("n1", "n2", "n3")
#: In the environment of a node's processes, so that all of them can be killed as if the machine lost power.
NODE_MARK = "TRAINVITALS_TEST_NODE"
READY_S = 60.0

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
CommunicationParameters=NoInAddrAny
SlurmctldPort={port}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
SwitchType=switch/none
MpiDefault=none
SlurmctldTimeout=10
SlurmdTimeout=5
MessageTimeout=5
TCPTimeout=1
InactiveLimit=0
KillWait=2
MinJobAge=300
ReturnToService=1
JobRequeue=1
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=twice Nodes=ALL MaxTime=INFINITE State=UP
"""


@dataclass
class Slurm:
    """``environment`` makes Slurm's commands speak with it."""

    directory: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    is_up: bool = False

    @property
    def environment(self) -> dict[str, str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", NODE_MARK))}
        return {**known, "SLURM_CONF": str(self.directory / "slurm.conf"), "PATH": PATHS}

    def start(self) -> Slurm:
        (self.directory / "state").mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 Weight={place}"
            for place, name in enumerate(NODES, 1)
        )
        (self.directory / "slurm.conf").write_text(
            CONFIG.format(host=host, user=getpass.getuser(), port=free_port(), directory=self.directory, nodes=nodes)
        )
        assert SLURMCTLD is not None
        self._begin("slurmctld", [SLURMCTLD, "-D", "-c"])
        for name in NODES:
            self.start_node(name)
        self.wait_until(lambda: set(self.states()) == set(NODES), "three nodes that are idle", all_idle=True)
        self.is_up = True
        return self

    def start_node(self, name: str) -> None:
        """Like a machine that was switched on."""
        assert SLURMD is not None
        (self.directory / f"spool.{name}").mkdir(exist_ok=True)
        self._begin(name, [SLURMD, "-D", "-N", name], {NODE_MARK: self._mark(name)})

    def _begin(self, name: str, argv: list[str], more: dict[str, str] | None = None) -> None:
        with (self.directory / f"{name}.out").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**self.environment, **(more or {})},
                start_new_session=True,
            )  # fmt: skip

    def kill_node(self, name: str) -> None:
        """Its daemon and all that it started are gone at once, and nobody says so."""
        while pids := self._pids_of(name):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.processes[name].poll()
        self.processes[name].wait(20)

    def _mark(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _pids_of(self, name: str) -> list[int]:
        found = []
        daemon = {f"{NODE_MARK}={self._mark(name)}".encode()}
        task = {f"SLURMD_NODENAME={name}".encode(), f"SLURM_CONF={self.directory / 'slurm.conf'}".encode()}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = set((entry / "environ").read_bytes().split(b"\0"))
                is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if (daemon <= environment or task <= environment) and not is_zombie:
                found.append(int(entry.name))
        return found

    def states(self) -> dict[str, str]:
        """Node -> state, as ``sinfo`` writes it."""
        lines = self.say("sinfo", "-N", "-h", "-o", "%N %T", check=False).split("\n")
        return dict(line.split() for line in lines if line.strip())

    def say(self, *argv: str, check: bool = True) -> str:
        """stdout of one of Slurm's commands."""
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, f"{argv}: {done.stderr}"
        return done.stdout

    def wait_until(self, holds: Callable[[], bool], what: str, all_idle: bool = False) -> None:
        until = time.monotonic() + READY_S
        while not holds() or (all_idle and set(self.states().values()) != {"idle"}):
            assert time.monotonic() < until, f"waited {READY_S} s for {what}: {self.states()} {self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """The end of what its daemons said."""
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(self.directory.glob("*.log")))

    def stop(self) -> None:
        if self.is_up:
            for job in self.say("squeue", "-h", "-o", "%i", check=False).split():
                self.say("scancel", job, check=False)
        for name in NODES:
            if name in self.processes:
                self.kill_node(name)
        if "slurmctld" in self.processes:
            stop(self.processes["slurmctld"])
