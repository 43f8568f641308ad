// What is live on the page: frames of /ws/status, drawn as those of a server or of a gateway, and the models.
"use strict";
const $ = id => document.getElementById(id);

const tile = (...about) => charts.tile($("tiles"), ...about);
const setState = (text, good) => {
  $("state").textContent = text;
  $("state").className = "pill " + (good ? "good" : "bad");
};

const modelRows = tables.table("models", 0);
let failures = new Map(); // why models did not load, by id
let listed = []; // what /v1/models said

// table shows models, loaded ones first: each with its name, state and config, and what takes room of it.
function table(models) {
  modelRows.show([...models].sort((a, b) => (b.state !== "available") - (a.state !== "available")).map(m => {
    const failure = m.state === "failed" && failures.get(m.name);
    const widths = m.config.outputs.map(o => m.config.dims[o]).filter(Boolean); // in the order of the outputs
    return {key: m.name, state: m.state, cells: [m.name,
      {text: failure ? `failed: ${failure.code}` : m.state, title: failure ? failure.message : ""},
      m.config.outputs.join(", "), widths.join(", "), m.config.max_sequence_length ?? "",
      m.room ?? (m.memory_bytes ? charts.bytes(m.memory_bytes) : ""), m.queue_pending_items || ""]};
  }));
}

async function offer() {
  const r = await sie.fetch("/v1/models").catch(() => null);
  if (!r || !r.ok) return;
  listed = (await r.json()).models;
  play.models(listed);
  failures = new Map(listed.filter(m => m.last_error).map(m => [m.name, m.last_error]));
}

let signature = "";
// refresh asks for the models again when what a frame says of them has changed.
function refresh(now) {
  if (now === signature) return;
  signature = now;
  offer();
}

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
    if (!sie.waits()) again = setTimeout(watch, 2000); // else the key that is asked for starts it
  };
}
addEventListener("sie-key", () => {
  offer();
  watch();
});
offer();
watch();
