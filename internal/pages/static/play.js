// The playground: forms for the three functions, their answers as pictures, and the same call for curl.
"use strict";
const play = (() => {
  const forms = Object.fromEntries(["encode", "score", "extract"].map(id => [id, document.getElementById(id)]));
  const needs = {encode: ["dense", "sparse", "multivector"], score: ["score"], extract: ["json"]};
  let known = [], chosen = "encode";

  const lines = text => text.split("\n").map(s => s.trim()).filter(Boolean);

  const fill = (select, names) => {
    const before = select.value;
    select.replaceChildren(...names.map(n => new Option(n)));
    if (names.includes(before)) select.value = before;
    select.disabled = names.length === 0;
  };

  // models offers, for each function, the models that have it, loaded ones first.
  function models(list) {
    known = list;
    const ordered = [...list].sort((a, b) => b.loaded - a.loaded);
    for (const [id, form] of Object.entries(forms)) {
      fill(form.model, ordered.filter(m => m.outputs.some(o => needs[id].includes(o))).map(m => m.name));
      form.querySelector("button.go").disabled = form.model.disabled;
      if (form.model.disabled) form.querySelector("output").textContent = "no model of this server does this";
    }
    outputs();
    curl(chosen);
  }

  function outputs() {
    const m = known.find(m => m.name === forms.encode.model.value);
    fill(forms.encode.output, m ? m.outputs.filter(o => needs.encode.includes(o)) : []);
  }
  forms.encode.model.addEventListener("change", outputs);

  // body is the request that a form stands for.
  const body = {
    encode: f => ({items: lines(f.texts.value).map(text => ({text})),
      params: {output_types: [f.output.value], ...(f.query.checked ? {options: {is_query: true}} : {})}}),
    score: f => ({query: {text: f.elements.query.value}, items: lines(f.texts.value).map(text => ({text}))}),
    extract: f => ({items: [{text: f.texts.value}], params: {labels: f.labels.value.split(",").map(s => s.trim()).filter(Boolean)}}),
  };

  function curl(id) {
    const form = forms[id];
    chosen = id;
    const quoted = JSON.stringify(body[id](form)).replace(/'/g, "'\\''");
    document.getElementById("curl").textContent = `curl ${location.origin}/v1/${id}/${form.model.value} \\\n` +
      `  -H 'Content-Type: application/json' -H 'Accept: application/json' \\\n` +
      (sie.key ? "  -H \"X-API-Key: $SIE_API_KEY\" \\\n" : "") + `  -d '${quoted}'`;
  }

  // reason is what an answer without results says.
  const reason = answer => answer.error?.message ?? answer.message ?? "the server does not say why";

  async function send(id, form) {
    const out = form.querySelector("output"), result = form.querySelector(".result");
    const button = form.querySelector("button.go");
    button.disabled = true;
    out.textContent = "…";
    out.className = "muted";
    curl(id);
    const started = performance.now();
    try {
      for (;;) {
        const r = await sie.fetch(`/v1/${id}/${form.model.value.split("/").map(encodeURIComponent).join("/")}`, {method: "POST",
          headers: {"Content-Type": "application/json", Accept: "application/json"}, body: JSON.stringify(body[id](form))});
        const answer = await r.json().catch(() => ({}));
        // Loading, full, or no worker yet: the server says when to come again.
        if ((r.status === 503 || r.status === 202) && performance.now() - started < 120_000) {
          const wait = Number(r.headers.get("Retry-After")) || 1;
          out.textContent = `${reason(answer)} (again in ${wait} s)`;
          await new Promise(done => setTimeout(done, 1000 * wait));
          continue;
        }
        result.replaceChildren();
        if (!r.ok || r.status === 202) throw new Error(`${r.status}: ${reason(answer)}`);
        const part = name => r.headers.get(name) ? `${name.slice(2, -5).toLowerCase()} ${r.headers.get(name)} ms` : "";
        out.textContent = [`${(performance.now() - started).toFixed(0)} ms here`, ...["X-Total-Time", "X-Queue-Time", "X-Tokenization-Time",
          "X-Inference-Time"].map(part), answer.usage ? `${answer.usage.input_tokens} tokens` : ""].filter(Boolean).join(" · ");
        show[id](result, answer, form);
        break;
      }
    } catch (e) {
      result.replaceChildren();
      out.textContent = e.message;
      out.className = "bad";
    }
    button.disabled = false;
  }

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const unit = a => {
    const n = Math.sqrt(dot(a, a)) || 1;
    return a.map(x => x / n);
  };

  // similarity of two results of the same output type, between -1 and 1.
  const similarity = {
    dense: (a, b) => dot(unit(a.dense.values), unit(b.dense.values)),
    sparse: (a, b) => {
      const weights = new Map(b.sparse.indices.map((k, i) => [k, b.sparse.values[i]]));
      const norm = x => Math.sqrt(dot(x.sparse.values, x.sparse.values)) || 1;
      return a.sparse.indices.reduce((sum, k, i) => sum + a.sparse.values[i] * (weights.get(k) || 0), 0) / (norm(a) * norm(b));
    },
    multivector: (a, b) => { // mean over a's tokens of the best match among b's
      const y = b.multivector.values.map(unit);
      const best = a.multivector.values.map(x => Math.max(...y.map(v => dot(unit(x), v))));
      return best.reduce((s, x) => s + x, 0) / (best.length || 1);
    },
  };

  const preview = {
    dense: v => `${v.dense.dims} × ${v.dense.dtype} [${v.dense.values.slice(0, 8).map(x => x.toFixed(4)).join(", ")}, …]`,
    sparse: v => `${v.sparse.indices.length} of ${v.sparse.dims ?? "?"} weights {${v.sparse.indices.slice(0, 8).map((k, i) => `${k}: ${v.sparse.values[i].toFixed(3)}`).join(", ")}, …}`,
    multivector: v => `${v.multivector.num_tokens} tokens × ${v.multivector.token_dims}`,
  };

  const show = {
    encode(result, answer, form) {
      const type = form.output.value, texts = lines(form.texts.value), items = answer.items;
      if (items.length > 1 && items.length <= 40) charts.heat(result, texts, items.map(a => items.map(b => similarity[type](a, b))));
      const pre = document.createElement("pre");
      pre.textContent = items.slice(0, 20).map(preview[type]).join("\n");
      result.append(pre);
    },
    score(result, answer, form) {
      const texts = lines(form.texts.value);
      charts.bars(result, answer.scores.map(s => ({value: s.score, name: texts[Number(s.item_id.slice(5))]})));
    },
    extract(result, answer, form) {
      const item = answer.items[0];
      if (item.error) throw new Error(item.error.message);
      if (!item.entities.length && !item.classifications.length) result.append("Nothing was found.");
      if (item.entities.length) marked(result, form.texts.value, item.entities);
      if (item.classifications.length) charts.bars(result, item.classifications.map(c => ({value: c.score, name: c.label})));
      const pre = document.createElement("pre");
      pre.textContent = JSON.stringify(item, null, 1);
      result.append(pre);
    },
  };

  // marked shows text with its entities; their places count code points.
  function marked(result, text, entities) {
    const points = [...text], p = document.createElement("p");
    p.className = "marked";
    let at = 0;
    for (const e of [...entities].filter(e => e.start !== null).sort((a, b) => a.start - b.start)) {
      if (e.start < at) continue; // inside another one
      p.append(points.slice(at, e.start).join(""));
      const mark = document.createElement("mark"), label = document.createElement("small");
      mark.textContent = points.slice(e.start, e.end).join("");
      mark.title = `${e.label} ${e.score.toFixed(3)}`;
      label.textContent = " " + e.label;
      mark.append(label);
      p.append(mark);
      at = e.end;
    }
    p.append(points.slice(at).join(""));
    result.append(p);
  }

  for (const [id, form] of Object.entries(forms)) {
    form.addEventListener("submit", e => {
      e.preventDefault();
      send(id, form);
    });
    form.addEventListener("input", () => curl(id));
    form.addEventListener("keydown", e => {
      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) form.requestSubmit();
    });
  }

  // Tabs as the ARIA practices have them: arrows move, only the chosen one is in the tab order.
  const tabs = [...document.querySelectorAll("[role=tab]")];
  function choose(tab, focus) {
    for (const t of tabs) {
      t.setAttribute("aria-selected", t === tab);
      t.tabIndex = t === tab ? 0 : -1;
      forms[t.getAttribute("aria-controls")].hidden = t !== tab;
    }
    if (focus) tab.focus();
    curl(tab.getAttribute("aria-controls"));
  }
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", e => {
      const to = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1}[e.key];
      if (to === undefined) return;
      e.preventDefault();
      choose(tabs[(to + tabs.length) % tabs.length], true);
    });
  });

  return {models};
})();
