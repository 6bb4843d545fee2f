"""Writes the tables of `benchmarks/results/tables` into docs/: a page per data set, and a summary.

python -m benchmarks.fill_results
"""

import re
from pathlib import Path

LINES = Path(__file__).parent / "tables"
RESULTS = Path(__file__).parent / "results" / "tables"
DOCS = Path(__file__).parents[1] / "docs"
TRIMMED = (RESULTS.parent / "grid_trimmed.txt").read_text()
OWN = dict(re.findall(r"\| (\w+) \| \d+ \| ([\d.]+) \|", TRIMMED))  # word → its frames' top-1 %

# One page for each: the data set's name in commands and files, its title, what it holds.
DATA = {
    "grid": (
        "GRID",
        'Sentences of six words ("place blue in u eight now"; Cooke et al. 2006) read from the '
        "lips of one speaker: 75 frames, of which one word of 6 to 9 frames is the answer. *Cut*: "
        "39 frames, seen as 26, cut out at a random time around the word, 13 token frames. "
        "*Whole*: the sentence, 18 token frames. *Faces*: in place of the mouth, a larger part of "
        "the face with the lips anywhere in it, 20×20 tokens a frame; trimmed to the word, 4 token "
        "frames, or *cut*. 700 sentences to train on, 84 to validate, 200 to test. "
        "`python -m benchmarks.grid_clips CORPUS ROOT` cuts mouths and tables (`--faces`: faces), "
        "`python -m benchmarks.grid_dense ROOT` trains the dense models that all lines start "
        "from, one for each word; the seeds share it. With the word's own frames alone, [trimmed "
        f"sentences](../benchmarks/results/grid_trimmed.txt), a model has {OWN['adverb']} % for "
        f"the adverb, {OWN['verb']} % for the verb, {OWN['colour']} % for the colour and "
        f"{OWN['digit']} % for the digit.",
    ),
    "streams": (
        "streams of signs",
        "A sign of LSA-20, which is the answer, among two other signs of the same signer in random "
        "order: a window of 144 frames that holds the whole of it, seen as 36, 18 token frames. "
        "`python -m benchmarks.sign_streams LSA64 ROOT` builds the streams from the public clips. "
        "Signers 1–7 to train on (1400 streams), 8 to validate (400), 9 and 10 to test (200).",
    ),
    "synthetic": (
        "synthetic actions",
        "Moving shapes; three or four of eight token frames and one region decide the class, and "
        "we know which ([training.md](training.md#synthetic-actions)). 1600 new clips per epoch "
        "to train on, 800 to test.",
    ),
    "lsa20": (
        "LSA-20",
        "Twenty signs of Argentinian Sign Language (LSA64, Ronchetti 2016), 160×120. Signers 1–7 "
        "to train on (700 clips), 8 to validate (100), 9 and 10 to test (200).",
    ),
    "gestures5": (
        "gestures5",
        "Five hand gestures in cluttered rooms. 663 clips to train on, 100 to test; there is no "
        "validation part.",
    ),
}
# GRID's rows of the summary: what is kept, the raw table, its plan, the words that were measured.
GRID = [
    ("GRID, {}, 3 of 13 frames", "grid_cut_{}_mvit_words", "T0=3", sorted(OWN)),
    ("GRID, {}, 4 of 13 frames", "grid_cut_{}_mvit_thirds", "T0_0.33", sorted(OWN)),
    ("GRID, {} of whole sentences, 3 of 18 frames", "grid_{}_mvit_words", "T0=3", sorted(OWN)),
    ("GRID, {} of whole sentences, 6 of 18 frames", "grid_{}_mvit_thirds", "T0_0.33", sorted(OWN)),
    (
        "GRID faces, {}, 64 of 400 tokens of a frame",
        "grid_faces_{}_mvit_lips",
        "S0_0.16",
        sorted(OWN),
    ),
    (
        "GRID faces, {}, 3 of 13 frames, 64 of 400 tokens of each",
        "grid_faces_cut_{}_mvit_lips_words",
        "T0=3-S0_0.16",
        sorted(OWN),
    ),
]
# All of them: what is kept of what, the raw table, its plan.
SUMMARY = [
    *((text.format(w), name.format(w), plan) for text, name, plan, words in GRID for w in words),
    ("streams of signs, 3 of 18 frames", "streams_mvit_words", "T0=3"),
    ("synthetic, 2 of 8 frames", "synthetic_mvit_today", "T0_0.25"),
    ("synthetic, half the frames, half of each", "synthetic_mvit_today", "T0_0.5-S4_0.5"),
    ("LSA-20, 3 of 8 frames", "lsa20_mvit_default", "T0_0.4"),
    ("LSA-20, half the frames, half of each", "lsa20_mvit_default", "T0_0.5-S4_0.5"),
    ("LSA-20, a region of each frame, S2_0.3", "lsa20_mvit_default", "S2_0.3"),
    ("gestures5, 2 of 8 frames", "gestures5_mvit_today", "T0_0.25"),
    ("gestures5, half the frames, half of each", "gestures5_mvit_today", "T0_0.5-S4_0.5"),
    ("Video Swin, synthetic, 3 of 8 frames", "synthetic_swin_temporal", "T0_0.4"),
    ("Video Swin, LSA-20, 3 of 8 frames", "lsa20_swin_temporal", "T0_0.4"),
    ("Video Swin, gestures5, 3 of 8 frames", "gestures5_swin_temporal", "T0_0.4"),
]
LEARNED = "stts-exact"
SELECTED = (LEARNED, "uniform", "static", "random")
MARKS = re.compile(r"(?<=<!-- summary -->\n).*?(?=\n<!-- end -->)", flags=re.DOTALL)
LEGEND = (
    "[comparing.md](comparing.md#what-the-columns-mean) explains the columns, "
    "[results.md](results.md) says what the tables mean. N/A: the method cannot work at that site; "
    "the raw file says why. `python -m benchmarks.fill_results` writes this page."
)


def build_pages() -> dict[Path, str]:
    """Give the text of every page that holds tables."""
    findings = DOCS / "results.md"
    pages = {DOCS / f"results_{data}.md": build_page(data) for data in DATA}
    return pages | {findings: MARKS.sub(build_summary(), findings.read_text())}


def build_page(data: str) -> str:
    """Put the tables of a data set one below the other."""
    title, description = DATA[data]
    sections = [build_section(path) for path in sorted(RESULTS.glob(f"{data}_*.md"))]
    return "\n\n".join([f"# Tables: {title}", description, LEGEND, *sections]) + "\n"


def build_section(path: Path) -> str:
    """Give a table its heading, caption and command; link the raw files, which hold the rest."""
    title, command, table, seeds, *_, commit = path.read_text().strip().split("\n\n")
    heading = read_heading(title)
    lines = (LINES / f"{heading.partition(':')[0]}.yaml").read_text()
    caption = lines.partition("\n")[0].removeprefix("# ")
    raw = f"../benchmarks/results/tables/{path.stem}"
    files = f"Raw: [table and warnings]({raw}.md), [every clip]({raw}.json), [plot]({raw}.png)."
    return "\n\n".join([f"## {heading}", caption, command, table, f"{seeds} {commit} {files}"])


def read_heading(title: str) -> str:
    """Leave the data set out of a table's title, but not which part of it: "frames: mvit_mini"."""
    heading, _, data = title.removeprefix("# ").partition(" on ")
    part = data.partition("_")[2].replace("_", " ")
    return f"{heading}, {part}" if part else heading


def build_summary() -> str:
    """Put learned selection beside what learns or looks at nothing, a row for each plan."""
    columns = ("learned", "uniform", "static", "random", "dense", "learned − uniform", "of the gap")
    lines = ["| data, tokens kept | " + " | ".join(columns) + " |", "|" + " --- |" * 8]
    return "\n".join([*lines, *(build_row(*row) for row in SUMMARY)])


def build_row(label: str, name: str, plan: str) -> str:
    """Pick a plan's figures out of a raw table; the best selection is bold."""
    title, cells = read_cells(name)
    methods = [method for method in SELECTED if (plan, method) in cells]
    top1 = {method: to_mean(cells[plan, method]["top-1 %"]) for method in methods}
    best = max(top1.values(), key=float)
    shown = [f"**{best}**" if top1.get(x) == best else top1.get(x, "–") for x in SELECTED]
    dense = to_mean(cells["dense", "start"]["top-1 %"])
    gap = re.sub(r" ± [\d.]+", "", cells[plan, LEARNED]["− uniform"])
    closed = share_of_gap(
        top1[LEARNED], top1["uniform"], best=max(dense, own_frames(name), key=float)
    )
    anchor = re.sub(r"[^\w -]", "", read_heading(title)).replace(" ", "-")
    link = f"results_{name.partition('_')[0]}.md#{anchor}"
    return "| " + " | ".join([f"{label} ([table]({link}))", *shown, dense, gap, closed]) + " |"


def read_cells(name: str) -> tuple[str, dict[tuple[str, str], dict[str, str]]]:
    """Read a raw table: its title, and its rows by plan and method."""
    title, _, table, *_ = (RESULTS / f"{name}.md").read_text().split("\n\n")
    header, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return title, {(row[0], row[1]): dict(zip(header, row, strict=True)) for row in rows}


def own_frames(name: str) -> str:
    """Give what a model reaches that sees the word in question alone; nothing is known: 0."""
    word = next((word for word in OWN if f"_{word}_" in name), "")
    if "faces" not in name:
        return OWN.get(word, "0")
    _, cells = read_cells(f"grid_faces_{word}_mvit_lips")  # sentences that are trimmed to it
    return to_mean(cells["dense", "start"]["top-1 %"])


def share_of_gap(learned: str, uniform: str, *, best: str) -> str:
    """Say how much of the way from uniform selection to the best there is learning goes."""
    gain, gap = float(learned) - float(uniform), float(best) - float(uniform)
    return f"{100 * gain / gap:.0f} %" if gain > 0 and gap > 0 else "–"


def to_mean(cell: str) -> str:
    """Leave the deviation out: "97.1 ± 0.8" becomes "97.1"."""
    return cell.partition(" ")[0]


if __name__ == "__main__":
    for path, text in build_pages().items():
        path.write_text(text)
