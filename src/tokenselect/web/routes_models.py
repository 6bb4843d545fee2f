"""What there is to choose from: models, plans, samples, limits."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from tokenselect.plan import SelectionPlan
from tokenselect.prediction.loaded import UNTRAINED
from tokenselect.prediction.samples import NUM_SAMPLES, sample_label
from tokenselect.web.catalogue import Catalogue, count_blocks, own_method, own_plan, own_sites
from tokenselect.web.limits import Limits
from tokenselect.web.page import sample_picture
from tokenselect.web.schemas import (
    Info,
    ModelDetail,
    ModelEntry,
    PlanEntry,
    SampleEntry,
    SiteEntry,
    fails,
)


def model_routes(catalogue: Catalogue, limits: Limits) -> APIRouter:
    """Make the routes that change nothing."""
    routes = APIRouter(prefix="/api", tags=["choices"])

    @routes.get("/info")
    def info() -> Info:
        """Give the models, methods, samples and limits."""
        return Info(
            models=[ModelEntry(key=k, title=o.title) for k, o in catalogue.offers.items()],
            methods=list(UNTRAINED),
            samples=[describe_sample(number) for number in range(NUM_SAMPLES)],
            max_mb=limits.max_mb,
            max_seconds=limits.max_seconds,
        )

    @routes.get("/models/{key}", responses=fails(404))
    def model(key: str) -> ModelDetail:
        """Open a model and say what it takes; a large one needs some seconds."""
        loaded = catalogue.open(key)
        return ModelDetail(
            key=key,
            title=catalogue.offers[key].title,
            name=loaded.name,
            blocks=count_blocks(loaded),
            sites=own_sites(loaded),
            plan=own_plan(loaded),
            method=loaded.method,
            first_method=own_method(loaded),
            input=[loaded.rule.frames, *loaded.rule.size],
            classes=len(loaded.class_names),
            notes=loaded.notes,
        )

    @routes.get("/models/{key}/plan", responses=fails(404, 422))
    def plan(key: str, text: str, method: str | None = None) -> PlanEntry:
        """Read a plan and put it into the model, without running it."""
        parsed = SelectionPlan.parse(text[:500])
        loaded = catalogue.with_plan(key, parsed, method=method)
        return PlanEntry(plan=str(parsed), sites=describe_sites(parsed), notes=loaded.remarks)

    @routes.get("/samples/{number}.jpg", response_class=Response, responses=fails(422))
    def picture(number: int) -> Response:
        """Give one frame of a sample."""
        return Response(sample_picture(number), media_type="image/jpeg")

    return routes


def describe_sample(number: int) -> SampleEntry:
    """Say what a sample shows, and where its picture is."""
    return SampleEntry(
        video=f"sample:{number}", label=sample_label(number), picture=f"/api/samples/{number}.jpg"
    )


def describe_sites(plan: SelectionPlan) -> list[SiteEntry]:
    """Take a plan apart, for the sliders."""
    return [
        SiteEntry(
            text=str(site),
            kind=site.kind,  # type: ignore[arg-type]
            block=site.block,
            ratio=site.keep if isinstance(site.keep, float) else None,
        )
        for site in plan
    ]
