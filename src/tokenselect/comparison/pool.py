"""Runs jobs side by side, each in a process of its own, so that none can break another."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from tokenselect.comparison.job import Job, run_job, save_job

Told = Callable[[Job, str | None], object]


def run_jobs(
    jobs: Sequence[Job], *, folder: Path, workers: int, on_done: Told = lambda job, error: None
) -> dict[str, str]:
    """Run all jobs that are not done; one that fails stops only those that need it.

    Args:
        jobs: those that others need among them.
        folder: for logs.
        workers: processes at a time; 0 runs all in this one.
        on_done: told each job when it ends, and what went wrong, if anything.

    Returns:
        Key to error of those that failed.
    """
    errors: dict[str, str] = {}
    done = {job.key for job in jobs if job.is_done}
    waiting = [job for job in jobs if job.key not in done]
    processes = JobProcesses(folder)
    pool = ThreadPoolExecutor(max(workers, 1))
    running: dict[Future[str | None], Job] = {}
    run = processes.run if workers else run_here
    try:
        while waiting or running:
            for job in [job for job in waiting if job.needs in errors]:
                waiting.remove(job)
                errors[job.key] = "not run: the model it starts from failed"
                on_done(job, errors[job.key])
            for job in [job for job in waiting if job.needs is None or job.needs in done]:
                if len(running) < max(workers, 1):
                    waiting.remove(job)
                    running[pool.submit(run, job)] = job
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                job, error = running.pop(future), future.result()
                if error is None:
                    done.add(job.key)
                else:
                    errors[job.key] = error
                on_done(job, error)
    finally:
        processes.stop()
        pool.shutdown(cancel_futures=True)
    return errors


def run_here(job: Job) -> str | None:
    """Run a job in this process; give what went wrong."""
    try:
        run_job(job)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class JobProcesses:
    """Starts processes and ends those that still run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.is_stopped = False

    def run(self, job: Job) -> str | None:
        """Run a job in a process of its own; give the end of its log if it fails."""
        path = self.folder / "jobs" / f"{job.recipe['name']}.json"
        save_job(job, path)
        log = path.with_suffix(".log")
        paths = os.pathsep.join(part for part in sys.path if part)
        threads = str(job.recipe["threads"] or 1)
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": threads}
        with log.open("w") as file:
            with self.lock:
                if self.is_stopped:
                    return "stopped"
                process = subprocess.Popen(
                    [sys.executable, "-m", "tokenselect.comparison.job", str(path)],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
                self.running.add(process)
            code = process.wait()
        with self.lock:
            self.running.discard(process)
        if code == 0 and job.is_done:
            return None
        last = [line for line in log.read_text().splitlines() if line.strip()][-1:]
        return f"{last[0] if last else f'ended with code {code}'} (see {log})"

    def stop(self) -> None:
        """End what still runs; a later start goes on from its last checkpoint."""
        with self.lock:
            self.is_stopped = True
            for process in self.running:
                process.terminate()
