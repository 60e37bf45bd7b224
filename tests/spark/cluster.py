"""A standalone cluster of Spark on this machine: a master, and workers on loopback addresses of their own.

Started from the classes of the pip package, ended by process id. Each worker passes a state directory of its
own on to its executors, in the variable `STATE_VARIABLE`: as a user's hosts might.

    with Cluster(folder, workers=3) as cluster:
        context = SparkContext(conf=SparkConf().setAll(cluster.settings().items()))
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark
from tests.spark.processes import command_of, descendants, kill_family, processes, until

from millstream.engine.spark.java import ensure_java, find_java
from millstream.engine.spark.session import session_settings

STATE_VARIABLE: Final = "TEST_STATE_DIR"
"""Where an executor of the cluster keeps its state: each worker has its own."""
STATE_DIR: Final = f"{{env:{STATE_VARIABLE}}}"
"""The setting `state_dir` of an application that runs on the cluster."""
CORES: Final = 2
_MEMORY: Final = "512m"
_WORKER_MEMORY: Final = "1g"
"""Room for an executor for each core."""
_SMALL_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_HOME: Final = Path(pyspark.__file__).parent
_SCALA: Final = next((_HOME / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]
"""Of Spark's own scripts, which are not used here."""
_EXECUTOR: Final = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True, slots=True)
class Host:
    """A worker of the cluster."""

    number: int
    address: str
    state_dir: Path
    process: subprocess.Popen[bytes]

    def executors(self) -> list[int]:
        """The process ids of the executors that it has started."""
        return [pid for pid in descendants(self.process.pid) if _EXECUTOR in command_of(pid)]

    def daemons(self) -> list[int]:
        """Those of the processes that fork Python workers."""
        everybody = processes()
        executors = self.executors()
        return [pid for pid, (parent, _) in everybody.items() if parent in executors]

    def python_workers(self) -> list[int]:
        """Those of its Python workers."""
        everybody = processes()
        daemons = self.daemons()
        return [pid for pid, (parent, _) in everybody.items() if parent in daemons]


class Cluster:
    """A master on 127.0.0.1 and workers on 127.0.0.2 and so on. It leaves no process behind."""

    def __init__(self, folder: Path, *, workers: int = 3) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.hosts: list[Host] = []
        self._seen: dict[int, str] = {}
        self._first = workers
        self._port = _free_port()
        with ensure_java(find_java()) as java:
            self._java = java

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        options = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._master = self._start("master.Master", "127.0.0.1", {}, options)
        until(self._answers, "the master listens")
        for _ in range(self._first):
            self.add_worker()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        started = [self._master, *(host.process for host in self.hosts)]
        for process in started:
            self._seen.update(descendants(process.pid))
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        kill_family(self._seen)

    def add_worker(self) -> Host:
        """Start one more worker, on the next address."""
        self.hosts.append(self._worker(len(self.hosts)))
        return self.hosts[-1]

    def restart_worker(self, number: int) -> Host:
        """Start a worker again that was killed: the same address, the same state directory."""
        self.hosts[number] = self._worker(number)
        return self.hosts[number]

    def forget_state(self) -> None:
        """Delete what applications have left on the hosts, after their end."""
        for host in self.hosts:
            shutil.rmtree(host.state_dir, ignore_errors=True)

    def _worker(self, number: int) -> Host:
        address = f"127.0.0.{number + 2}"
        state_dir = self.folder / f"state-{number}"
        options = ["--host", address, "--webui-port", "0", "--cores", str(CORES), "--memory", _WORKER_MEMORY]
        options += ["--work-dir", str(self.folder / f"work-{number}"), self.master]
        process = self._start("worker.Worker", address, {STATE_VARIABLE: str(state_dir)}, options)
        return Host(number, address, state_dir, process)

    def alive(self) -> list[Host]:
        """The workers that run."""
        return [host for host in self.hosts if host.process.poll() is None]

    def kill_worker(self, host: Host) -> None:
        """SIGKILL a worker and all that it has started, all at once as far as anybody can see."""
        os.kill(host.process.pid, signal.SIGSTOP)  # it must not start another executor
        family = descendants(host.process.pid)
        self._seen.update(family)
        kill_family(family)
        host.process.kill()
        host.process.wait()

    def kill_executor(self, host: Host) -> int:
        """SIGKILL an executor of a worker, which starts another one. Its process id."""
        until(lambda: bool(host.executors()), f"an executor on {host.address}")
        self._seen.update(descendants(host.process.pid))
        victim = host.executors()[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def kill_instance(self, host: Host) -> None:
        """SIGKILL all executors of a worker, which starts others, and the Python workers below them."""
        until(lambda: bool(host.executors()), f"an executor on {host.address}")
        executors = host.executors()
        for executor in executors:
            os.kill(executor, signal.SIGSTOP)  # it must not fork another worker
        family = {pid: born for executor in executors for pid, born in descendants(executor).items()}
        self._seen.update(family)
        kill_family(family)
        for executor in executors:
            os.kill(executor, signal.SIGKILL)

    def left_behind(self) -> list[int]:
        """Processes that executors have started and that have outlived them. Call it now and then."""
        everybody = processes()
        known = {process.pid for process in (self._master, *(host.process for host in self.hosts))}
        below = {pid for process in known for pid in descendants(process)}
        orphans = [
            pid
            for pid, born in self._seen.items()
            if pid not in below and everybody.get(pid, (0, ""))[1] == born
        ]
        for process in known:
            self._seen.update(descendants(process))
        return orphans

    def settings(self) -> dict[str, str]:
        """What a session needs to run on the cluster, as a user would say it.

        PYSPARK_PYTHON has to be the Python of the tests.
        """
        return {
            **session_settings(),
            "spark.master": self.master,
            "spark.app.name": "tests",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": " ".join(_SMALL_JVM),
            "spark.local.dir": str(self.folder / "driver"),
            "spark.executor.cores": str(CORES),
            "spark.executor.memory": _MEMORY,
            "spark.executor.extraJavaOptions": " ".join(_SMALL_JVM),
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }

    def logs(self) -> str:
        """What master and workers have said."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def _start(
        self, name: str, address: str, environment: dict[str, str], options: list[str]
    ) -> subprocess.Popen[bytes]:
        java, jars = str(self._java / "bin" / "java"), f"{_HOME / 'jars'}/*"
        small = ["-Xmx192m", *_SMALL_JVM, "-Dspark.deploy.maxExecutorRetries=-1"]
        command = [java, *small, "-cp", jars, f"org.apache.spark.deploy.{name}", *options]
        with (self.folder / f"{name}-{address}.log").open("wb") as log:
            return subprocess.Popen(
                command,
                env={
                    **os.environ,
                    **environment,
                    "SPARK_HOME": str(_HOME),
                    "SPARK_SCALA_VERSION": _SCALA,
                    "SPARK_LOCAL_IP": address,
                    "SPARK_LOCAL_DIRS": str(self.folder / f"local-{address}"),
                    "JAVA_HOME": str(self._java),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def _answers(self) -> bool:
        assert self._master.poll() is None, self.logs()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
