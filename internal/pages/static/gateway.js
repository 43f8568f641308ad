// The frames of a gateway: the cluster, and what this gateway has done.
"use strict";

// why says what the reasons of refused and failed requests mean.
const why = {
  queue_full: "too much waits for the model's workers",
  provisioning: "no worker yet: one is asked for",
  rate_limited: "a token is over its quota",
  forbidden: "a token may not do this",
  model_not_found: "no model has this name",
  pool_not_found: "no pool has this name",
  model_loading: "the model is being loaded",
  model_load_failed: "the model could not be loaded",
  invalid_input: "the request is wrong",
  input_too_long: "a text is longer than the model takes",
  resource_exhausted: "there is too little memory for it",
  deadline_exceeded: "no answer in time",
  inference_error: "it could not be run, or ended the servers that ran it",
  internal_error: "a fault of this gateway or of a worker",
  draining: "this gateway is ending",
};

// gateway returns what draws the frames of a gateway.
function gateway() {
  const live = {
    requests: tile("requests / s"),
    items: tile("items / s"),
    failed: tile("refused or failed / s"),
    workers: tile("workers ready"),
    queue: tile("slices in queues"),
    busy: tile("items at workers"),
    memory: tile("memory of devices", charts.bytes),
  };
  for (const section of document.querySelectorAll("[data-of=gateway]")) section.hidden = false;
  $("room").textContent = "workers";
  const shown = Object.fromEntries(["lanes", "queues", "workers", "pools", "failed", "tenants"].map(id => [id, tables.table(id)]));
  const frames = []; // of the last minute: when, and what was counted
  const lane = x => `${x.pool}/${x.machine_profile ?? x.gpu}/${x.bundle}`;
  poll(shown);

  // remember keeps a frame. A gateway that was started again counts anew.
  function remember(s) {
    if (frames.length && s.activity.requests < frames.at(-1).activity.requests) frames.length = 0;
    frames.push({timestamp: s.timestamp, activity: s.activity});
    while (frames.length > 2 && s.timestamp - frames[0].timestamp > 60) frames.shift();
  }

  const total = failed => Object.values(failed).reduce((n, x) => n + x, 0);
  // rate is that of the last frame or two: they come once a second.
  const rate = count => {
    const now = frames.at(-1), old = frames.at(-3) ?? frames[0], seconds = now.timestamp - old.timestamp;
    return seconds > 0 ? Math.max(count(now.activity) - count(old.activity), 0) / seconds : 0;
  };

  function state(w) {
    if (!w.live) return ["silent", "bad"];
    if (!w.healthy) return ["not ready", "bad"];
    return w.saturated ? ["full", "ready"] : ["ready", "ready"];
  }

  function worker(w, now) {
    const [text, kind] = state(w), failed = w.failed_models ?? [];
    const models = [tables.few(w.loaded_models), w.loading_models.length ? "loading " + tables.few(w.loading_models) : "",
      failed.length ? "failed " + tables.few(failed) : ""].filter(Boolean).join("; ");
    return {key: w.name, state: kind, find: () => [w.name, text, lane(w), ...w.loaded_models, ...w.loading_models, ...failed].join(" "),
      cells: [w.name, text, tables.lasted(now - w.since), lane(w), {text: models, title: w.loaded_models.slice(0, 50).join("\n")},
        w.queue_depth || "", w.inflight_batches || "",
        w.memory_total_bytes ? `${charts.bytes(w.memory_used_bytes)} of ${charts.bytes(w.memory_total_bytes)}` : charts.bytes(w.memory_used_bytes),
        charts.short(w.free_credit)]};
  }

  return s => {
    remember(s);
    const sum = (list, key) => list.reduce((n, x) => n + (x[key] ?? 0), 0), ready = s.workers.filter(w => w.healthy).length;
    live.requests.push(rate(a => a.requests));
    live.items.push(rate(a => a.items));
    live.failed.push(rate(a => total(a.failed)));
    live.workers.push(ready);
    live.queue.push(sum(s.lanes, "queue_depth"));
    live.busy.push(sum(s.workers, "queue_depth"));
    live.memory.push(sum(s.workers, "memory_used_bytes"), sum(s.workers, "memory_total_bytes"));

    $("version").textContent = s.server.version;
    setState(!s.ready ? "not ready" : ready ? "ready" : "no workers", s.ready && ready);
    const wanted = sum(s.lanes, "wanted_workers");
    $("about").textContent = [`gateway of ${s.lanes.length} ${s.lanes.length === 1 ? "lane" : "lanes"}`, `${ready} of ${s.workers.length} workers ready`,
      wanted ? `${wanted} wanted` : "", "up " + tables.lasted(s.server.uptime_seconds),
      s.truncated ? "the cluster is too large for a frame: not all of it is shown" : ""].filter(Boolean).join(" · ");

    shown.lanes.show(s.lanes.map(l => ({key: lane(l), state: l.ready ? "ready" : l.wanted_workers ? "bad" : "",
      cells: [lane(l), `${l.ready} of ${l.workers}`, l.wanted_workers || "", l.queue_depth ?? "not known", l.items || "", charts.short(l.free_credit)]})));
    shown.queues.show(s.queues.map(q => ({key: q.model + " " + lane(q), cells: [q.model, lane(q), q.untaken_items, q.unanswered_items,
      q.items_per_second ? charts.short(q.items_per_second) : ""]})));
    shown.workers.show([...s.workers].sort((a, b) => a.healthy - b.healthy).map(w => worker(w, s.timestamp)));
    const before = frames[0].activity.failed;
    shown.failed.show(Object.entries(s.activity.failed).sort((a, b) => b[1] - a[1]).map(([reason, n]) =>
      ({key: reason, cells: [reason, why[reason] ?? "", n - (before[reason] ?? 0), n]})));

    const queued = new Map(s.models.map(m => [m.name, m.total_queue_depth]));
    table(listed.map(m => ({name: m.name, state: m.state, config: m, room: m.worker_count || "", queue_pending_items: queued.get(m.name)})));
    refresh(JSON.stringify([s.server.config_epoch, s.models.map(m => [m.name, m.worker_count]),
      s.workers.map(w => [w.healthy, w.loading_models, w.failed_models])]));
  };
}

// poll shows what depends on the caller: the pools that it may use, and the tenants that it may see.
async function poll(shown) {
  const denied = new Set(); // what this key may not see; a new key is asked about again
  addEventListener("sie-key", () => denied.clear());
  const read = async path => {
    if (denied.has(path)) return null;
    const r = await sie.fetch(path).catch(() => null);
    if (r && r.status === 403) denied.add(path);
    return r && r.ok ? r.json().catch(() => null) : null; // not JSON: something else answered for the gateway
  };
  for (;;) {
    if (!document.hidden && !sie.waits()) {
      const pools = await read("/v1/pools"), usage = await read("/v1/usage");
      $("pools-section").hidden = !pools;
      if (pools) shown.pools.show(pools.pools.map(pool));
      $("tenants-section").hidden = !usage || !usage.tenants.length;
      if (usage) shown.tenants.show(usage.tenants.map(tenant));
    }
    await new Promise(done => setTimeout(done, 2000));
  }
}

function pool(p) {
  const counts = Object.entries(p.spec.gpus).filter(([, n]) => n).map(([profile, n]) => `${n} × ${profile}`);
  const names = p.status.assigned_workers.map(w => w.name);
  return {key: p.name, state: p.status.state === "active" ? "ready" : "bad", cells: [p.name, p.status.state,
    p.spec.queue_pool === p.name ? "" : p.spec.queue_pool, counts.join(", "), names.length, {text: tables.few(names), title: names.slice(0, 50).join("\n")},
    p.status.last_renewed ? tables.lasted(Date.now() / 1000 - p.status.last_renewed) + " ago" : ""]};
}

function tenant(t) {
  const limits = [t.items_per_s ? `${charts.short(t.items_per_s)} items / s` : "", t.in_flight_items_limit ? `${t.in_flight_items_limit} in flight` : "",
    t.pools ? "pools " + tables.few(t.pools) : "", t.models ? "models " + tables.few(t.models) : ""].filter(Boolean).join("; ");
  return {key: t.name, cells: [t.name, t.priority, t.requests, t.items, t.in_flight_items, t.over_rate + t.over_in_flight || "",
    t.forbidden || "", limits]};
}
