"use strict";
/* The camera: its last seconds go to the server again and again; the newest pictures win. */

const RATE = 12, KEPT_SECONDS = 3, SIDE = 256; // pictures a second, how many seconds, their short side
const live = { stream: null, timer: null, shots: [], taken: 0, shown: 0, skipped: 0, clips: 0, began: 0 };

/* ---- pictures ---- */
function takeShot() {
  const video = at("preview");
  if (!video.videoWidth) return;
  const scale = Math.min(1, SIDE / Math.min(video.videoWidth, video.videoHeight));
  const canvas = make("canvas", { width: Math.round(video.videoWidth * scale), height: Math.round(video.videoHeight * scale) });
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  live.shots.push(canvas.toDataURL("image/jpeg", 0.8));
  live.taken += 1;
  if (live.shots.length > RATE * KEPT_SECONDS) live.shots.shift();
}

/* ---- one clip after the other ---- */
async function lookOn() {
  while (live.stream) {
    if (!now.model || live.taken === live.shown || live.shots.length < 2) { await pause(50); continue; }
    const frames = [...live.shots], arrived = live.taken;
    live.skipped += Math.max(0, arrived - live.shown - frames.length);
    live.shown = arrived;
    try {
      const found = await post("/api/live", {
        frames, fps: RATE, model: now.model.key, plan: at("text").value, method: at("method").value || null });
      if (!live.stream) return;
      live.clips += 1;
      complain(null);
      drawLook(found, frames);
    } catch (error) {
      if (!live.stream) return;
      if (error.status !== 429) complain(error);
      await pause(500);
    }
  }
}
function drawLook(found, frames) {
  const seconds = (performance.now() - live.began) / 1000;
  say("The camera is running.");
  at("live").hidden = false;
  at("live-top").replaceChildren(...found.top.map(({ label, probability }) =>
    make("li", {}, make("span", { text: label }), make("meter", { min: 0, max: 1, value: probability, "aria-label": label }),
      make("span", { text: percent(probability, 1) }))));
  at("live-figures").textContent = `${(live.clips / seconds).toFixed(1)} clips per second, ${found.milliseconds.toFixed(0)} ms each. ` +
    `${found.plan} saves ${percent(found.saved)} of the multiply-adds. ${live.skipped} of ${live.taken} pictures skipped.`;
  at("live-notes").replaceChildren(...found.notes.map((note) => make("p", { class: "note", text: note })));
  at("live-strip").replaceChildren(...found.frames.map((number, index) => {
    const box = found.kept[index];
    const shot = make("div", { class: box ? "screen" : "screen dropped" },
      make("img", { src: frames[number], alt: box ? "kept" : "dropped" }));
    if (box) {
      const [x0, y0, x1, y1] = box.map((share) => 100 * share);
      const frame = make("i", { class: "box" });
      Object.assign(frame.style, { left: `${x0}%`, top: `${y0}%`, width: `${x1 - x0}%`, height: `${y1 - y0}%` });
      shot.append(frame);
    }
    return shot;
  }));
}

/* ---- on and off ---- */
async function startCamera() {
  try {
    complain(null);
    say("waiting for the camera");
    if (!navigator.mediaDevices) throw new Error("This browser gives a camera to pages of this machine or of https only.");
    const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "user" }, audio: false });
    Object.assign(live, { stream, shots: [], taken: 0, shown: 0, skipped: 0, clips: 0, began: performance.now() });
    at("preview").srcObject = stream;
    await at("preview").play();
    at("camera").textContent = "Stop the camera";
    live.timer = setInterval(takeShot, 1000 / RATE);
    lookOn();
  } catch (error) {
    stopCamera();
    complain(new Error(`The camera cannot be used: ${error.message}`));
  }
}
function stopCamera() {
  clearInterval(live.timer);
  for (const track of live.stream?.getTracks() ?? []) track.stop();
  live.stream = at("preview").srcObject = null;
  at("camera").textContent = "Start the camera";
  say("");
}
function chooseTab(name) {
  const isCamera = name === "camera";
  for (const tab of ["file", "camera"]) {
    at(`tab-${tab}`).setAttribute("aria-selected", tab === name);
    at(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
    at(`from-${tab}`).hidden = tab !== name;
  }
  document.body.classList.toggle("at-camera", isCamera);
  at("run").disabled = isCamera;
  if (!isCamera && live.stream) stopCamera();
  if (isCamera) { stop(); now.runs += 1; say("Start the camera: its last seconds are answered while it runs."); }
}
for (const [name, other] of [["file", "camera"], ["camera", "file"]]) {
  at(`tab-${name}`).addEventListener("click", () => chooseTab(name));
  at(`tab-${name}`).addEventListener("keydown", (event) => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    chooseTab(other);
    at(`tab-${other}`).focus();
  });
}
at("camera").addEventListener("click", () => (live.stream ? stopCamera() : startCamera()));
addEventListener("pagehide", stopCamera);
