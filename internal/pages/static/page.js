// The live part of the page: frames of /ws/status into numbers, lines and tables.
"use strict";
const $ = id => document.getElementById(id);

const tile = (...about) => charts.tile($("tiles"), ...about);
const setState = (text, good) => {
  $("state").textContent = text;
  $("state").className = "pill " + (good ? "good" : "bad");
};

// server returns what draws the frames of a sie-server.
function server() {
  const live = {
    requests: tile("requests / s"),
    tokens: tile("tokens / s"),
    running: tile("requests running"),
    queue: tile("items queued"),
    batch: tile("items / batch"),
    busy: tile("device busy", v => (100 * v).toFixed(0) + " %", 1),
    memory: tile("memory", charts.bytes),
    models: tile("memory of models", charts.bytes),
  };

  // Rates cover one second of frames: at five frames a second, rates of single frames jump.
  const frames = [];

  return s => {
    frames.push(s);
    while (frames.length > 2 && s.timestamp - frames[0].timestamp > 1.1) frames.shift();
    const a = s.activity, old = frames[0], seconds = Math.max(s.timestamp - old.timestamp, 1e-3);
    const rate = key => frames.length < 2 ? 0 : (a[key] - old.activity[key]) / seconds;
    live.requests.push(rate("requests"));
    live.tokens.push(rate("tokens"));
    live.running.push(a.running);
    live.queue.push(s.models.reduce((n, m) => n + m.queue_pending_items, 0));
    live.batch.push(rate("batches") > 0 ? rate("batch_items") / rate("batches") : 0);
    live.busy.push(Math.min(rate("busy_seconds") / Math.max(s.gpu_count, 1), 1));
    const gpu = s.gpus.reduce((n, g) => [n[0] + g.memory_used_bytes, n[1] + g.memory_total_bytes], [0, 0]);
    if (gpu[1]) live.memory.push(gpu[0], gpu[1]);
    else live.memory.push(a.memory_used_bytes, a.memory_total_bytes);
    live.models.push(s.models.reduce((n, m) => n + m.memory_bytes, 0));

    $("version").textContent = s.server.version;
    setState(s.saturated ? "full" : s.ready ? "ready" : "not ready", s.ready && !s.saturated);
    const up = s.server.uptime_seconds;
    $("devices").textContent = [s.gpus.map(g => `${g.device} ${g.name} ${g.utilization_pct} %`).join(", ") || "CPU",
      `up ${up >= 3600 ? (up / 3600).toFixed(1) + " h" : up >= 60 ? (up / 60).toFixed(0) + " min" : up + " s"}`].join(" · ");
    table(s.models);
  };
}

// gateway returns what draws the frames of a gateway: its workers, and the models that /v1/models lists.
function gateway() {
  const live = {
    requests: tile("requests / s"),
    workers: tile("workers"),
    queue: tile("items at workers"),
    memory: tile("memory of devices", charts.bytes),
  };
  $("workers-section").hidden = false;
  $("room").textContent = "workers";
  let loadedThen = "";

  return s => {
    live.requests.push(s.cluster.total_qps);
    live.workers.push(s.cluster.worker_count);
    live.queue.push(s.workers.reduce((n, w) => n + w.queue_depth, 0));
    const sum = key => s.workers.reduce((n, w) => n + w[key], 0);
    live.memory.push(sum("memory_used_bytes"), sum("memory_total_bytes"));
    setState(!s.ready ? "not ready" : s.cluster.worker_count ? "ready" : "no workers", s.ready && s.cluster.worker_count);
    $("devices").textContent = s.lanes.map(l => `${l.pool}/${l.machine_profile}/${l.bundle}: ${l.ready} of ${l.workers} ready`).join(" · ");
    const body = document.createElement("tbody");
    for (const w of s.workers) {
      const row = body.insertRow();
      for (const v of [w.name, w.healthy ? "ready" : "not ready", `${w.pool}/${w.gpu}/${w.bundle}`, w.loaded_models.join(", "),
        w.queue_depth || "", charts.short(w.free_credit)]) row.insertCell().textContent = v;
      row.cells[4].className = row.cells[5].className = "n";
    }
    $("workers").tBodies[0].replaceWith(body);
    const loadedNow = s.models.map(m => m.name + m.worker_count).join();
    if (loadedNow !== loadedThen) {
      loadedThen = loadedNow;
      offer();
    }
    const queued = new Map(s.models.map(m => [m.name, m.total_queue_depth]));
    table(listed.map(m => ({name: m.name, state: m.state, config: m, room: m.worker_count || "", queue_pending_items: queued.get(m.name)})));
  };
}

const rows = new Map(); // by id
let failures = new Map(); // why models did not load, by id
let listed = []; // what /v1/models said
let loadedBefore = "";

// table keeps the rows and changes what changed: a page that is rebuilt five times a second can't be read or selected.
function table(models) {
  const body = $("models").tBodies[0];
  for (const m of models) {
    let row = rows.get(m.name);
    if (!row) {
      row = body.insertRow();
      for (let i = 0; i < 7; i++) row.insertCell();
      row.cells[5].className = row.cells[6].className = "n";
      rows.set(m.name, row);
    }
    const widths = m.config.outputs.map(o => m.config.dims[o]).filter(Boolean); // in the order of the outputs
    const failure = m.state === "failed" && failures.get(m.name);
    const values = [m.name, failure ? `failed: ${failure.code}` : m.state, m.config.outputs.join(", "), widths.join(", "), m.config.max_sequence_length ?? "",
      m.room ?? (m.memory_bytes ? charts.bytes(m.memory_bytes) : ""), m.queue_pending_items || ""];
    values.forEach((v, i) => {
      if (row.cells[i].textContent !== String(v)) row.cells[i].textContent = v;
    });
    row.dataset.state = m.state;
    row.cells[1].title = failure ? failure.message : "";
  }
  if (rows.size > models.length) { // the models directory was read again, and some are gone
    const named = new Set(models.map(m => m.name));
    for (const [name, row] of rows) if (!named.has(name)) row.remove(), rows.delete(name);
    offer();
  }
  const now = models.filter(m => m.state !== "available").map(m => m.name + m.state).join();
  if (now !== loadedBefore) { // loaded ones come first, in the frame's order
    loadedBefore = now;
    body.append(...[...models].sort((a, b) => (b.state !== "available") - (a.state !== "available")).map(m => rows.get(m.name)));
    offer();
  }
  filter();
}

function filter() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows.values()) {
    row.hidden = !words.every(w => row.textContent.toLowerCase().includes(w));
    shown += !row.hidden;
  }
  $("count").textContent = `${shown} of ${rows.size}`;
}
$("filter").addEventListener("input", filter);

async function offer() {
  const r = await sie.fetch("/v1/models");
  if (!r.ok) return;
  listed = (await r.json()).models;
  play.models(listed);
  failures = new Map(listed.filter(m => m.last_error).map(m => [m.name, m.last_error]));
}

addEventListener("sie-key", () => { $("ask").hidden = false; });
$("ask").addEventListener("submit", e => {
  e.preventDefault();
  sie.setKey($("key").value.trim());
  $("key").value = "";
  $("ask").hidden = true;
  offer();
  watch();
});

let socket = null, again = 0, draw = null;
function watch() {
  clearTimeout(again);
  if (socket) socket.onclose = null, socket.close();
  socket = sie.socket("/ws/status");
  socket.onmessage = m => {
    const s = JSON.parse(m.data);
    draw ??= s.cluster ? gateway() : server();
    draw(s);
  };
  socket.onclose = () => {
    setState("not connected", false);
    if ($("ask").hidden) again = setTimeout(watch, 2000); // else the key that is asked for starts it
  };
}
offer();
watch();
