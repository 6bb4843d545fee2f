"use strict";
/* The plan as two sliders and as text: whichever is moved, the other follows. */

const SITES = { T: { slider: "frames-kept", block: "frames-block", text: "frames-text", all: "all frames" },
  S: { slider: "region-kept", block: "region-block", text: "region-text", all: "the whole frame" } };

/* Calls `onChange(method)` with a plan that the model takes; a wrong one is explained below the text. */
function planControls({ onChange, ask }) {
  let model = null, timer = null, checks = 0;

  const ratioText = (value) => String(Math.round(100 * value) / 100);
  const siteText = (kind) => {
    const ratio = Number(at(SITES[kind].slider).value);
    return ratio >= 1 ? null : `${kind}${at(SITES[kind].block).value}_${ratioText(ratio)}`;
  };
  const fromSliders = () => {
    const order = ["T", "S"].map((kind) => ({ text: siteText(kind), block: Number(at(SITES[kind].block).value) }));
    const sites = order.filter((site) => site.text !== null).sort((a, b) => a.block - b.block);
    return sites.map((site) => site.text).join("-") || "dense";
  };
  const label = (kind, text = null) => {
    const { slider, text: output, all, block } = SITES[kind];
    const ratio = Number(at(slider).value);
    const said = text ?? (ratio >= 1 ? all : percent(ratio));
    at(output).textContent = said;
    at(slider).setAttribute("aria-valuetext", `${said}, before block ${at(block).value}`);
  };
  const say = (message) => {
    at("plan-wrong").textContent = message;
    at("text").setAttribute("aria-invalid", message !== "");
  };

  /* Sliders show a plan of at most one site of each kind with ratios; anything else only the text does. */
  function toSliders(sites) {
    for (const kind of ["T", "S"]) {
      const own = sites.filter((site) => site.kind === kind);
      const isSimple = own.length < 2 && own.every((site) => site.ratio !== null);
      if (isSimple) at(SITES[kind].slider).value = own.length ? own[0].ratio : 1;
      if (own.length === 1) at(SITES[kind].block).value = own[0].block;
      label(kind, isSimple ? (own.length ? percent(own[0].ratio) : null) : own.map((site) => site.text).join(", "));
    }
  }

  async function check({ isTyped }) {
    const mine = ++checks;
    const query = new URLSearchParams({ text: at("text").value });
    if (at("method").value) query.set("method", at("method").value);
    try {
      const plan = await ask(`/api/models/${encodeURIComponent(model.key)}/plan?${query}`);
      if (mine !== checks) return;
      say("");
      at("text").value = plan.plan;
      if (isTyped) toSliders(plan.sites);
      onChange();
    } catch (error) {
      if (mine === checks) say(error.message);
    }
  }
  const soon = (how) => { clearTimeout(timer); timer = setTimeout(() => check(how), 200); };

  for (const kind of ["T", "S"]) {
    const moved = () => { label(kind); at("text").value = fromSliders(); soon({ isTyped: false }); };
    at(SITES[kind].slider).addEventListener("input", moved);
    at(SITES[kind].block).addEventListener("change", moved);
  }
  at("text").addEventListener("change", () => soon({ isTyped: true }));
  at("method").addEventListener("change", () => soon({ isTyped: true }));

  /* A model with trained selectors takes its own sites; another any block. */
  function useModel(detail) {
    model = detail;
    for (const kind of ["T", "S"]) {
      const known = detail.sites && detail.sites.filter((site) => site[0] === kind).map((site) => Number(site.slice(1)));
      const blocks = known ?? [...Array(detail.blocks).keys()];
      at(SITES[kind].block).replaceChildren(...blocks.map((block) => make("option", { value: block, text: block })));
      at(SITES[kind].slider).disabled = at(SITES[kind].block).disabled = blocks.length === 0;
    }
    at("method").options[0].textContent = detail.sites ? `learned (${detail.method})` : `${detail.method}, not trained`;
    at("method").value = detail.first_method ?? "";
    at("text").value = detail.plan;
    return check({ isTyped: true });
  }
  return { useModel, submit: () => { clearTimeout(timer); return check({ isTyped: true }); } };
}
