"""From a site and a method's name to a selector."""

from collections.abc import Callable

from tokenselect.ops.anchors import Pair
from tokenselect.plan import THW, Site
from tokenselect.selectors import baselines, selector
from tokenselect.selectors.relaxation import GumbelTopK, PerturbedTopK, Relaxation
from tokenselect.selectors.scoring import (
    AnchorFeatureScoring,
    FromUniformScoring,
    LearnedScoring,
    ReleasedScorer,
    ReleasedScoring,
    Scorer,
    Scoring,
)
from tokenselect.selectors.taught import TaughtScoring

LEARNED: dict[str, str] = {  # method -> how its smoothed Top-K is computed
    "stts": "auto",
    "stts-exact": "exact",
    "stts-sampled": "sampled",
    "stts-diagonal": "diagonal",
}
UNLEARNED: dict[str, Callable[[], Scoring]] = {
    "random": baselines.RandomScoring,
    "uniform": baselines.UniformScoring,
    "attention": baselines.AttentionScoring,
    "motion": baselines.MotionScoring,
    "novelty": baselines.NoveltyScoring,
    "rlt": baselines.RunLengthScoring,
    "evs": baselines.RepeatScoring,
    "diversity": baselines.DiversityScoring,
    "text": baselines.TextScoring,
}
CLIP_WIDE = ("rlt", "evs", "diversity", "text")  # loose tokens of the clip, where blocks allow it
WITHOUT_PARAMETERS = (*UNLEARNED, "merge")
METHODS = (*LEARNED, "gumbel", "static", *WITHOUT_PARAMETERS)
DEFAULT_SCORER = "taught"
SCORERS = ("paper", "anchor-features", "released", "from-uniform", "taught")


def build_selector(
    site: Site,
    *,
    channels: int,
    method: str = "stts",
    scorer: str = DEFAULT_SCORER,
    sigma: float = 0.1,  # section 4.1
    num_samples: int = 500,  # section 3.2
    stride: Pair | None = None,
    tokenwise: bool = False,
    thw: THW | None = None,
    is_sequence: bool = False,
) -> selector.Selector:
    """Build the selector of one site.

    Args:
        site: what to select and how much to keep.
        channels: width of the tokens there.
        method: one of `METHODS`.
        scorer: of the learned methods: "taught", which sees motion and neighbouring frames, begins
            as uniform selection and can be taught by a dense model; "from-uniform", the network of
            the authors' code on top of uniform selection. To reproduce the paper: "paper", its
            text; "released", the authors' code; "anchor-features", which scores anchors by their
            average features (Table 6).
        sigma: noise of the smoothed Top-K to begin with.
        num_samples: perturbations, where they are sampled.
        stride: α, rows and columns between anchors; None: half the room (taught: a third of that).
        tokenwise: select patches one by one instead of a region (Table 6).
        thw: the usual grid at the site; only "static" asks for it.
        is_sequence: the blocks behind the site take any sequence of tokens, which need not be a
            grid; "merge" and "rlt" then work on the tokens of the clip.
    """
    _check_names(site, method, scorer)
    is_loose = is_sequence and site.kind == "S" and not tokenwise
    needs_loose = method == "merge" or (method in CLIP_WIDE and not tokenwise)
    if site.kind == "S" and needs_loose and not is_loose:
        raise ValueError(
            f"method {method!r} takes tokens out of a frame one by one, got site {site} of a "
            "backbone whose blocks need a grid (pooling, windows): there, use it at "
            "T sites only"
        )
    if method == "merge":
        return selector.FrameMerger(site) if site.kind == "T" else selector.TokenMerger(site)
    scoring = _build_scoring(site, method, channels=channels, scorer=scorer, thw=thw)
    if method in CLIP_WIDE and is_loose:
        return selector.ClipTokenSelector(site, scoring=scoring)
    relaxation: Relaxation | None = None
    if method in LEARNED or method == "static":
        smoothing = LEARNED.get(method, "auto")
        relaxation = PerturbedTopK(sigma=sigma, method=smoothing, num_samples=num_samples)
    elif method == "gumbel":
        relaxation = GumbelTopK()
    whole = selector.FrameSelector if site.kind == "T" else selector.RegionSelector
    kind = selector.TokenSelector if tokenwise and site.kind == "S" else whole
    return kind(site, scoring=scoring, relaxation=relaxation, stride=stride)


def has_parameters(method: str) -> bool:
    """Tell whether a method has weights of its own, which are nothing before they are trained."""
    return method in METHODS and method not in WITHOUT_PARAMETERS


def has_scorer(method: str) -> bool:
    """Tell whether a method looks at the tokens through a scorer network."""
    return method in LEARNED or method == "gumbel"


def _check_names(site: Site, method: str, scorer: str) -> None:
    """Refuse what is unknown and what the paper's Table 1 calls N/A."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if scorer not in SCORERS:
        raise ValueError(f"scorer must be one of {', '.join(SCORERS)}, got {scorer!r}")
    if method == "gumbel" and site.kind == "S":
        raise ValueError(
            f"method 'gumbel' selects frames only, got site {site}: a region must keep its shape "
            "for the spatial down-sampling that follows (N/A in the paper's Table 1)"
        )
    if method == "attention" and site.block == 0:
        raise ValueError(
            f"method 'attention' needs a block before the site, got site {site}: no attention has "
            "been computed before block 0 (N/A in the paper's Table 1)"
        )


def _build_scoring(
    site: Site, method: str, *, channels: int, scorer: str, thw: THW | None
) -> Scoring:
    """Give what scores the candidates."""
    if method in UNLEARNED:
        return UNLEARNED[method]()
    if method == "static":
        if thw is None:
            raise ValueError(
                f"method 'static' has a score for each position, but the grid at site {site} of "
                "this model is not known"
            )
        return baselines.StaticScoring(site.kind, thw)
    if scorer == "taught":
        return TaughtScoring(site.kind, channels)
    if scorer in ("released", "from-uniform"):
        width = 2 * channels if site.kind == "T" else channels  # frames: average ‖ maximum
        kind = ReleasedScoring if scorer == "released" else FromUniformScoring
        return kind(ReleasedScorer(width))
    paper = AnchorFeatureScoring if scorer == "anchor-features" else LearnedScoring
    return paper(Scorer(channels))
