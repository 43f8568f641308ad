// The API's documentation, made from openapi.json.
"use strict";
const el = (tag, text, cls) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};

function resolve(spec, s) {
  return s && s.$ref ? s.$ref.slice(2).split("/").reduce((o, k) => o[k], spec) : s;
}

function shape(spec, s, depth) {
  s = resolve(spec, s) || {};
  if (s.example && depth === 0) return JSON.stringify(s.example, null, 2);
  const pad = "  ".repeat(depth + 1);
  if (s.oneOf) return s.oneOf.map(x => shape(spec, x, depth)).join(" | ");
  if (s.enum) return s.enum.map(x => JSON.stringify(x)).join(" | ");
  if ("const" in s) return JSON.stringify(s.const);
  if (s.properties && depth < 4) {
    const need = s.required || [];
    const rows = Object.entries(s.properties).map(([k, v]) =>
      `${pad}"${k}"${need.includes(k) ? "" : "?"}: ${shape(spec, v, depth + 1)}`);
    return `{\n${rows.join(",\n")}\n${"  ".repeat(depth)}}`;
  }
  if (s.items) return `[${shape(spec, s.items, depth)}, …]`;
  return [].concat(s.type || "any").join(" | ");
}

function route(spec, path, method, op) {
  const box = el("details", undefined, "route");
  const head = el("summary");
  head.append(el("b", method.toUpperCase(), "method " + method), " ", el("code", path), " ", el("span", op.summary, "muted"));
  box.append(head);
  const body = op.requestBody && op.requestBody.content["application/json"];
  let input = null;
  if (body) {
    box.append(el("h3", "Request"), el("pre", shape(spec, body.schema, 0)));
    input = el("textarea");
    input.rows = 5;
    const s = resolve(spec, body.schema);
    input.value = JSON.stringify(s.example || {}, null, 2);
    input.setAttribute("aria-label", "request body");
  }
  const parameters = (op.parameters || []).map(p => resolve(spec, p));
  const fields = parameters.filter(p => p.in === "path").map(p => {
    const i = el("input");
    i.value = p.example || "";
    i.setAttribute("aria-label", p.name);
    return [p.name, i];
  });
  const optional = parameters.filter(p => p.in !== "path");
  if (optional.length) {
    const all = el("ul");
    for (const p of optional) {
      const li = el("li");
      li.append(el("code", p.name), ` (${p.in}) ${p.description}`);
      all.append(li);
    }
    box.append(el("h3", "Headers and query"), all);
  }
  box.append(el("h3", "Answers"));
  const list = el("ul");
  for (const [code, r] of Object.entries(op.responses)) {
    const li = el("li");
    li.append(el("code", code), " " + r.description);
    list.append(li);
  }
  box.append(list);
  if (path.startsWith("/ws/")) return box;
  const out = el("pre", "", "out");
  out.hidden = true;
  const send = el("button", "Try it");
  send.onclick = async () => {
    out.hidden = false;
    out.textContent = "…";
    const url = fields.reduce((u, [k, i]) => u.replace(`{${k}}`, encodeURIComponent(i.value)), path);
    const t = performance.now();
    try {
      const r = await sie.fetch(url, input ? {method, body: input.value, headers: {"Content-Type": "application/json", Accept: "application/json"}} : {method});
      const text = await r.text();
      out.textContent = `${r.status} in ${(performance.now() - t).toFixed(1)} ms\n${text.slice(0, 4000)}${text.length > 4000 ? "…" : ""}`;
    } catch (e) {
      out.textContent = String(e);
    }
  };
  const row = el("p");
  for (const [k, i] of fields) row.append(el("label", k + " "), i, " ");
  if (input) box.append(input);
  row.append(send);
  box.append(row, out);
  return box;
}

fetch("/openapi.json").then(r => r.json()).then(spec => {
  const root = document.getElementById("routes");
  root.textContent = "";
  for (const tag of spec.tags) {
    root.append(el("h2", tag.name));
    for (const [path, ops] of Object.entries(spec.paths))
      for (const [method, op] of Object.entries(ops))
        if (op.tags.includes(tag.name)) root.append(route(spec, path, method, op));
  }
});
