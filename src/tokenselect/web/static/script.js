"use strict";
/* Video, model and plan in; jobs on the server; the report's own script draws what comes back. */

const LONG = 15, PART = 10; // a video longer than so many seconds is looked at in parts of so many
const MOST_TRIED = 12; // plans that stay on the page beside the new one
const now = { model: null, video: null, file: null, job: null, gone: null, runs: 0, tried: new Map(), of: "", drawn: null };

/* ---- the server ---- */
async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer: is it still running?");
  }
  const body = answer.status === 204 ? null : await answer.json().catch(() => ({ detail: answer.statusText }));
  if (!answer.ok) throw Object.assign(new Error(body.detail), { status: answer.status });
  return body;
}
const post = (address, body) => ask(address, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
const forget = (address) => fetch(address, { method: "DELETE", keepalive: true }).catch(() => null);
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/* ---- what is being said ---- */
function say(text, progress = null) {
  if (at("status").textContent !== text) at("status").textContent = text;
  at("bar").hidden = progress === null;
  if (progress !== null) at("bar").value = progress;
}
function complain(error) {
  at("wrong").textContent = error ? error.message : "";
  if (error) say("");
}
const busy = (isOn) => { at("cancel").disabled = !isOn; at("result").classList.toggle("stale", isOn); };

/* ---- videos ---- */
function send(file) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch does not tell how much has been sent
    request.open("POST", `/api/videos?name=${encodeURIComponent(file.name)}`);
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) =>
      say(`uploading ${file.name} to this server`, event.total ? event.loaded / event.total : 0));
    request.addEventListener("load", () => {
      if (request.status === 201) resolve(request.response);
      else reject(new Error(request.response?.detail ?? `${file.name} was refused (${request.status})`));
    });
    request.addEventListener("error", () => reject(new Error(`${file.name} could not be sent`)));
    request.send(file);
  });
}
function letGo() {
  if (now.video && now.file) forget(`/api/videos/${now.video.video}`);
  Object.assign(now, { video: null, file: null });
}
async function takeFile(file) {
  stop();
  complain(null);
  letGo();
  for (const choice of document.querySelectorAll("[name=sample]")) choice.checked = false;
  at("part").hidden = true;
  const mine = ++now.runs;
  if (file.size > now.limits.max_mb * 2 ** 20) {
    return complain(new Error(`${file.name} is larger than ${now.limits.max_mb} MB, the limit of this server`));
  }
  try {
    say(`uploading ${file.name} to this server`, 0);
    const video = await send(file);
    if (mine !== now.runs) return forget(`/api/videos/${video.video}`); // another was chosen meanwhile
    Object.assign(now, { video, file });
    showPart(video);
    run();
  } catch (error) {
    if (mine === now.runs) complain(error);
  }
}
function takeSample(sample) {
  letGo();
  at("file").value = "";
  at("part").hidden = true;
  now.video = { video: sample.video, seconds: 0 };
  run();
}
function showPart(video) {
  at("part").hidden = video.seconds <= LONG;
  at("start").max = Math.max(0, Math.floor(2 * (video.seconds - PART)) / 2);
  at("start").value = at("start").max / 2;
  labelPart();
}
function labelPart() {
  const start = Number(at("start").value);
  at("start-text").textContent = `${start.toFixed(1)} s to ${(start + PART).toFixed(1)} s`;
}

/* ---- jobs ---- */
/* Wait until no job of this page is in the queue, nor one that is still being asked for. */
function stop() {
  const gone = now.job?.then((job) => forget(`/api/jobs/${job.job}`), () => null);
  now.gone = Promise.all([now.gone, gone]).then(() => null);
  now.job = null;
  busy(false);
  return now.gone;
}
const asked = () => ({
  video: now.video.video, model: now.model.key, plan: at("text").value, method: at("method").value || null,
  ...(at("part").hidden ? {} : { start: Number(at("start").value), seconds: PART }) });

async function run() {
  if (!now.video || !now.model) return;
  const mine = ++now.runs;
  await stop(); // its place in the queue is free before another is asked for
  if (mine !== now.runs) return;
  complain(null);
  const wanted = asked();
  busy(true);
  try {
    now.job = post("/api/jobs", wanted);
    let job = await now.job;
    while (mine === now.runs && ["waiting", "running"].includes(job.state)) {
      say(job.doing, job.progress);
      await pause(100);
      job = await ask(`/api/jobs/${job.job}`);
    }
    if (mine === now.runs) finish(job, wanted);
  } catch (error) {
    if (mine !== now.runs) return;
    busy(false);
    if (error.status === 404 && now.file) return takeFile(now.file); // it lay idle and was deleted
    complain(error);
  }
}
function finish(job, wanted) {
  now.job = null;
  busy(false);
  if (job.state === "done") show(job, wanted);
  else if (job.state === "failed") complain(new Error(job.error));
  else say("Cancelled.");
}

/* The machine may be busier than before: earlier times are scaled by what the dense model takes now. */
function keepPace(milliseconds) {
  for (const plan of now.tried.values()) plan.milliseconds *= milliseconds / now.pace;
}

/* Plans tried on the same clip stay, so that the report's slider and table compare them. */
function show(job, wanted) {
  const story = job.result, [dense, plan] = story.plans;
  const of = [wanted.video, wanted.model, wanted.start].join();
  if (now.of !== of) Object.assign(now, { of, tried: new Map(), drawn: null });
  else keepPace(dense.milliseconds);
  if (plan) {
    if (wanted.method) plan.plan += ` (${wanted.method})`;
    now.tried.delete(plan.plan);
    now.tried.set(plan.plan, plan);
    if (now.tried.size > MOST_TRIED) now.tried.delete(now.tried.keys().next().value);
  }
  now.pace = dense.milliseconds;
  story.plans = [dense, ...[...now.tried.values()].sort((a, b) => b.gmacs - a.gmacs)];
  story.start = plan ? story.plans.indexOf(plan) : 0;
  at("result").hidden = false;
  now.drawn = showStory(story, now.drawn);
  at("report").href = `/api/jobs/${job.job}/report.html`;
  const shown = plan ?? dense, [best] = shown.top;
  const saved = plan ? `, ${percent(1 - plan.gmacs / dense.gmacs)} of the multiply-adds saved` : "";
  say(`${best.label}, ${percent(best.probability, 1)}, under ${shown.plan}${saved}.`);
}

/* ---- once ---- */
async function useModel(key) {
  const plans = now.plans;
  complain(null);
  stop();
  now.model = null;
  const mine = ++now.runs;
  try {
    say("loading the model", 0);
    const detail = await ask(`/api/models/${encodeURIComponent(key)}`);
    if (mine !== now.runs) return;
    now.model = detail;
    say("Choose a video or a sample.");
    await plans.useModel(detail);
  } catch (error) {
    if (mine === now.runs) complain(error);
  }
}
function watchDrops() {
  const area = at("drop");
  const hasFile = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (hasFile(event)) { event.preventDefault(); area.classList.add("over"); }
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) area.classList.remove("over"); });
  document.addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    area.classList.remove("over");
    takeFile(event.dataTransfer.files[0]);
  });
}
async function begin() {
  now.limits = await ask("/api/info");
  const { models, methods, samples, max_mb: size, max_seconds: seconds } = now.limits;
  at("limits").textContent = `At most ${size} MB and ${seconds} seconds.`;
  at("model").replaceChildren(...models.map((model) => make("option", { value: model.key, text: model.title })));
  at("method").replaceChildren(make("option", { value: "", text: "the model's own" }),
    ...methods.map((method) => make("option", { value: method, text: `${method}, needs no training` })));
  at("samples").replaceChildren(...samples.map((sample) => {
    const choice = make("input", { type: "radio", name: "sample", value: sample.video });
    choice.addEventListener("change", () => takeSample(sample));
    return make("label", { class: "sample" }, choice, make("img", { src: sample.picture, alt: "" }), make("span", { text: sample.label }));
  }));
  at("plan").labels[0].textContent = "Tried";
  now.plans = planControls({ ask, onChange: run });
  at("model").addEventListener("change", (event) => useModel(event.target.value));
  at("file").addEventListener("change", (event) => { if (event.target.files.length) takeFile(event.target.files[0]); });
  at("start").addEventListener("input", labelPart);
  at("start").addEventListener("change", run);
  at("ask").addEventListener("submit", (event) => { event.preventDefault(); now.plans.submit(); });
  at("cancel").addEventListener("click", () => { now.runs += 1; stop(); say("Cancelled."); });
  addEventListener("pagehide", () => { stop(); letGo(); });
  watchDrops();
  await useModel(models[0].key);
}
begin().catch(complain);
