"""Jobs: begin, look how far, read the result, cancel."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from tokenselect.plan import SelectionPlan
from tokenselect.visualization.report import build_page
from tokenselect.web.catalogue import Catalogue
from tokenselect.web.errors import Missing
from tokenselect.web.jobs import Job, JobQueue
from tokenselect.web.schemas import JobEntry, JobRequest, fails
from tokenselect.web.uploads import UploadStore
from tokenselect.web.work import STEPS, check_video, explain, without_pictures

REPORT_HEADERS = {  # its script and style are inside it
    "Content-Disposition": 'attachment; filename="kept.html"',
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    ),
}


def job_routes(catalogue: Catalogue, store: UploadStore, queue: JobQueue) -> APIRouter:
    """Make the routes of jobs."""
    routes = APIRouter(prefix="/api/jobs", tags=["jobs"])

    @routes.post("", status_code=202, responses=fails(404, 422, 429))
    def begin(asked: JobRequest) -> JobEntry:
        """Put a job in line: one clip, dense and under the plan."""
        if asked.plan is not None:
            SelectionPlan.parse(asked.plan)  # a typing mistake is answered at once
        if asked.model is not None and asked.model not in catalogue.offers:
            raise ValueError(f"no model {asked.model!r}; there are {', '.join(catalogue.offers)}")
        check_video(asked.video, store)
        job = queue.add(lambda tell: explain(asked, catalogue, store, tell), steps=STEPS)
        return describe(job, has_pictures=False)

    @routes.get("/{job}", responses=fails(404))
    def look(job: str, pictures: bool = True) -> JobEntry:
        """Say how far a job is; with its result once it is done."""
        return describe(queue.get(job), has_pictures=pictures)

    @routes.delete("/{job}", responses=fails(404))
    def cancel(job: str) -> JobEntry:
        """Cancel a job; a running one leaves at its next step."""
        return describe(queue.cancel(job), has_pictures=False)

    @routes.get("/{job}/report.html", response_class=HTMLResponse, responses=fails(404))
    def report(job: str) -> HTMLResponse:
        """Give the result as one self-contained page to keep."""
        result = queue.get(job).result
        if result is None:
            raise Missing(f"job {job!r} has no result")
        return HTMLResponse(build_page(result), headers=REPORT_HEADERS)

    return routes


def describe(job: Job, *, has_pictures: bool) -> JobEntry:
    """Say how far a job is."""
    entry = JobEntry(
        job=job.id, state=job.state, doing=job.doing, progress=job.progress, error=job.error
    )
    if job.state == "done" and job.result is not None:
        result = job.result if has_pictures else without_pictures(job.result)
        return JobEntry.model_validate({**entry.model_dump(), "result": result})
    return entry
