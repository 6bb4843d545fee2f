"use strict";
/* Draws one story (see story.py). No library, no request: all pictures are in the story. */

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const at = (id) => document.getElementById(id);
const percent = (share, digits = 0) => (100 * share).toFixed(digits) + " %";
const amount = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));
const small = (value) => (value > 0 && value < 0.00005 ? "< 0.0001" : value.toFixed(4));
const timed = ({ milliseconds, spread }) => amount(milliseconds) + (spread ? ` ± ${spread.toPrecision(2)}` : "");
const shape = (thw) => thw.join(" × ");

let listening = null; // lets go of the story on the page
/* `before`: what an earlier call returned, to go on at the same frame of the same clip. */
function showStory(story, before = null) {
  const wasPlaying = Boolean(before?.timer);
  listening?.abort();
  listening = new AbortController();
  const { clip, plans } = story;
  let reference = plans[0]; // what the chosen plan is compared with
  const state = { plan: story.start, frame: 0, stage: -1, heat: Boolean(before?.heat), timer: null };
  const tokenFrame = (frame) => Math.floor(frame / clip.stride[0]);

  /* ---- one frame with what a site left of it ---- */
  const put = (element, [x0, y0, x1, y1]) => {
    Object.assign(element.style, {
      left: 100 * x0 + "%", top: 100 * y0 + "%", width: 100 * (x1 - x0) + "%", height: 100 * (y1 - y0) + "%",
    });
    return element;
  };
  const sprite = (site, kind, frame) => {
    const [vx0, vy0, vx1, vy1] = clip.view, [gx0, gy0, gx1, gy1] = site.grid;
    const count = Math.ceil(clip.frames.length / clip.stride[0]);
    const inner = make("i", { class: "sprite " + kind });
    put(inner, [0, 0, (gx1 - gx0) / (vx1 - vx0), (gy1 - gy0) / (vy1 - vy0)]);
    inner.style.backgroundImage = `url(${site[kind]})`;
    inner.style.backgroundSize = `${100 * count}% 100%`;
    inner.style.backgroundPosition = `${count > 1 ? (100 * tokenFrame(frame)) / (count - 1) : 0}% 0`;
    return put(make("i", { class: "view" }, inner), clip.view);
  };
  const screen = (site, frame, { heat = false, tag = "div" } = {}) => {
    const box = site ? site.boxes[frame] : clip.view;
    const shown = make(tag, { class: box ? "screen" : "screen dropped" });
    shown.style.aspectRatio = `${clip.width} / ${clip.height}`;
    const what = box ? "kept" : "dropped";
    shown.append(make("img", { src: clip.frames[frame], alt: `frame at ${clip.times[frame].toFixed(2)} s, ${what}` }));
    if (heat && site && site.heat && box) {
      shown.classList.add("hot");
      shown.append(sprite(site, "heat", frame));
    }
    if (box) {
      if (site && site.gone) shown.append(sprite(site, "gone", frame));
      const look = site ? (heat && site.heat ? "box open" : "box") : "box whole";
      shown.append(put(make("i", { class: look }), box));
    }
    return shown;
  };

  /* ---- parts of the page ---- */
  const siteShown = (plan) => plan.sites[state.stage < 0 ? plan.sites.length - 1 : Math.min(state.stage, plan.sites.length - 1)] || null;
  const heatSite = (plan) => {
    const shown = siteShown(plan);
    return shown && shown.heat ? shown : [...plan.sites].reverse().find((site) => site.heat) || shown;
  };

  function drawFigures() {
    const plan = plans[state.plan];
    const rows = [["answer", `${plan.top[0].label}, ${percent(plan.top[0].probability, 1)}`]];
    const against = plan === reference ? "" : ` of ${amount(reference.gmacs)}`;
    rows.push(["GMACs", amount(plan.gmacs) + against]);
    if (plan.milliseconds !== null) {
      const dense = plan === reference ? "" : ` of ${timed(reference)}`;
      rows.push(["ms", timed(plan) + dense]);
    }
    if (plan.method) rows.push(["method", plan.method]);
    rows.push(["pixels that reach the end", percent(plan.share)]);
    at("figures").replaceChildren(
      ...rows.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }))));
    at("plan-text").textContent = plan.plan;
    Object.assign(at("plan"), { value: state.plan, ariaValueText: plan.plan });
  }

  function drawStages() {
    const sites = plans[state.plan].sites;
    if (state.stage >= sites.length) state.stage = -1;
    at("stage").replaceChildren(
      make("option", { value: -1, text: "all sites" }),
      ...sites.slice(0, -1).map((site, index) => make("option", { value: index, text: site.text })));
    at("stage").value = state.stage;
    at("stage").disabled = sites.length < 2;
    at("heat").disabled = !sites.some((site) => site.heat);
  }

  function drawPair() {
    const plan = plans[state.plan];
    const shots = (plan === reference ? [plan] : [reference, plan]).map((shown) => {
      const site = state.heat ? heatSite(shown) : siteShown(shown);
      const shot = make("figure", { class: "shot", "--aspect": clip.width / clip.height });
      shot.append(screen(site, state.frame, { heat: state.heat }), make("figcaption", { text: shown.plan }));
      return shot;
    });
    at("pair").replaceChildren(...shots);
    const time = `${clip.times[state.frame].toFixed(2)} s, frame ${clip.numbers[state.frame]}`;
    at("time").textContent = time;
    at("frame").value = state.frame;
    at("frame").setAttribute("aria-valuetext", time);
    [...at("strip").children].forEach((shot, index) =>
      shot.classList.toggle("current", index === tokenFrame(state.frame)));
  }

  const stripOf = (site, heat, onPick) => {
    const shots = [];
    for (let frame = 0; frame < clip.frames.length; frame += clip.stride[0]) {
      const shown = screen(site, frame, { heat, tag: onPick ? "button" : "div" });
      if (onPick) {
        shown.type = "button";
        shown.addEventListener("click", () => onPick(frame));
      }
      shots.push(make("figure", { class: "shot" }, shown,
        make("figcaption", { text: clip.times[frame].toFixed(2) + " s" })));
    }
    return shots;
  };

  function drawStrip() {
    const plan = plans[state.plan];
    const site = state.heat ? heatSite(plan) : siteShown(plan);
    at("strip").replaceChildren(...stripOf(site, state.heat, (frame) => { state.frame = frame; drawPair(); }));
  }

  function drawAnswers() {
    const plan = plans[state.plan], shown = plan === reference ? [plan] : [reference, plan];
    at("predictions").replaceChildren(...shown.map((one) => make("div", {}, make("h3", { text: one.plan }),
      ...one.top.map((guess) => make("div", { class: "answer" }, make("span", { text: guess.label }),
        make("span", {}, make("div", { class: one === reference ? "bar dense" : "bar", "--share": guess.probability })),
        make("span", { text: percent(guess.probability, 1) }))))));
  }

  const curve = (site) => {
    const known = site.scores.filter((score) => score !== null);
    const low = Math.min(...known), span = Math.max(...known) - low || 1;
    return make("div", { class: "curve" }, ...site.scores.map((score, index) => {
      const kept = site.boxes[index * clip.stride[0]] !== null;
      const time = clip.times[index * clip.stride[0]].toFixed(1);
      if (score === null) return make("div", { class: "was-gone", title: "dropped before" }, make("span", { text: "–" }), make("span", { text: time }));
      const column = make("div", { class: kept ? "kept" : "", title: `score ${score}, ${kept ? "kept" : "dropped"}` });
      column.append(make("span", { text: score.toFixed(2) }), make("b", { "--share": 0.03 + 0.97 * (score - low) / span }), make("span", { text: time }));
      return column;
    }));
  };

  function drawSites() {
    const { sites } = plans[state.plan];
    if (!sites.length) {
      at("sites").replaceChildren(make("p", { class: "faint", text: "A dense model keeps everything." }));
      return;
    }
    at("sites").replaceChildren(...sites.map((site) => {
      const [t, h, w] = site.after;
      const told = site.kind === "T"
        ? `keeps ${t} of ${site.before[0]} frames of tokens before block ${site.block}: those with the highest scores, in their order.`
        : `keeps ${h} × ${w} of ${site.before[1]} × ${site.before[2]} patches of each frame before block ${site.block}: the region with the highest average score. Bright is high.`;
      const shown = site.kind === "T" ? curve(site) : make("div", { class: "strip" }, ...stripOf(site, true, null));
      return make("article", { class: "site" }, make("h3", { text: site.text }), make("p", { class: "faint", text: told }), shown);
    }));
  }

  function drawTable() {
    const head = make("tr", {}, ...["plan", "method", "answer", "", "GMACs", "ms", "pixels kept"].map((text) => make("th", { text, scope: "col" })));
    const rows = plans.map((plan, index) => {
      const button = make("button", { type: "button", text: plan.plan });
      button.addEventListener("click", () => choose(index));
      return make("tr", { class: index === state.plan ? "chosen" : "" }, make("td", {}, button),
        make("td", { text: plan.method ?? "–" }), make("td", { text: plan.top[0].label }), make("td", { text: percent(plan.top[0].probability, 1) }),
        make("td", { text: amount(plan.gmacs) }), make("td", { text: plan.milliseconds === null ? "–" : timed(plan) }),
        make("td", { text: percent(plan.share) }));
    });
    at("table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  }

  function drawLayers() {
    const plan = plans[state.plan];
    const dense = Object.fromEntries(reference.layers.map((layer) => [layer.name, layer.gmacs]));
    const most = Math.max(...reference.layers.map((layer) => layer.gmacs));
    const head = ["layer", "frames × rows × columns", "patches", "GMACs", reference.plan, ""].map((text) => make("th", { text, scope: "col" }));
    const rows = plan.layers.map((layer) => {
      const before = dense[layer.name];
      const bars = make("td", { class: "bars" });
      if (before !== undefined) bars.append(make("div", { class: "bar dense", "--share": before / most }));
      bars.append(make("div", { class: "bar", "--share": layer.gmacs / most }));
      const patches = layer.thw?.reduce((a, b) => a * b).toLocaleString("en") ?? "";
      return make("tr", { class: before === undefined ? "site-row" : "" }, make("td", { text: layer.name }),
        make("td", { text: shape(layer.thw ?? []) }), make("td", { text: patches }), make("td", { text: small(layer.gmacs) }),
        make("td", { text: before === undefined ? "" : small(before) }), bars);
    });
    at("layers").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  }

  function drawAll() {
    drawFigures(); drawStages(); drawStrip(); drawPair(); drawAnswers(); drawSites(); drawTable(); drawLayers();
  }
  function choose(index) { state.plan = Math.max(0, Math.min(plans.length - 1, index)); drawAll(); }
  function seek(frame) { const count = clip.frames.length; state.frame = (frame + count) % count; drawPair(); }
  function play(isOn) {
    clearInterval(state.timer);
    state.timer = isOn ? setInterval(() => seek(state.frame + 1), Math.max(50, 1000 / clip.rate)) : null;
    at("play").textContent = isOn ? "Pause" : "Play";
    at("play").setAttribute("aria-pressed", isOn);
  }

  /* ---- once ---- */
  const { signal } = listening;
  const on = (element, name, listener) => element.addEventListener(name, listener, { signal });
  signal.addEventListener("abort", () => play(false));
  at("name").textContent = clip.name;
  at("about").textContent = `${story.model}, ${shape(clip.input)} input, video of ${clip.width} × ${clip.height}`;
  at("notes").replaceChildren(...story.notes.map((note) => make("p", { class: "note", text: note })));
  at("plan").max = plans.length - 1;
  at("plan").disabled = plans.length < 2;
  at("plan-marks").replaceChildren(...plans.map((plan, index) => make("option", { value: index })));
  at("frame").max = clip.frames.length - 1;
  at("beside").replaceChildren(...plans.map((plan, index) => make("option", { value: index, text: plan.plan })));
  on(at("beside"), "change", (event) => { reference = plans[Number(event.target.value)]; drawAll(); });
  on(at("plan"), "input", (event) => choose(Number(event.target.value)));
  on(at("frame"), "input", (event) => { play(false); seek(Number(event.target.value)); });
  on(at("stage"), "change", (event) => { state.stage = Number(event.target.value); drawStrip(); drawPair(); });
  on(at("heat"), "change", (event) => { state.heat = event.target.checked; drawStrip(); drawPair(); });
  on(at("play"), "click", () => play(state.timer === null));
  on(document, "keydown", (event) => {
    if (event.target.matches("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = { ArrowLeft: () => seek(state.frame - 1), ArrowRight: () => seek(state.frame + 1),
      ArrowUp: () => choose(state.plan - 1), ArrowDown: () => choose(state.plan + 1), " ": () => play(state.timer === null) };
    if (steps[event.key]) { event.preventDefault(); steps[event.key](); }
  });
  const last = plans[state.plan].sites.at(-1); // its first kept frame is the first to show
  state.frame = before?.frame ?? Math.max(0, last ? last.boxes.findIndex((box) => box !== null) : 0);
  at("heat").checked = state.heat;
  drawAll();
  play(wasPlaying);
  return state;
}

if (document.getElementById("story")) showStory(JSON.parse(document.getElementById("story").textContent));
