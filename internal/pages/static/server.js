// The frames of a sie-server as numbers and lines.
"use strict";
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
    $("about").textContent = [s.gpus.map(g => `${g.device} ${g.name} ${g.utilization_pct} %`).join(", ") || "CPU",
      "up " + tables.lasted(s.server.uptime_seconds)].join(" · ");
    table(s.models);
    refresh(s.models.length + s.models.filter(m => m.state !== "available").map(m => m.name + m.state).join());
  };
}
