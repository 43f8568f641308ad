// Small pictures made of SVG and table cells; colours come from the style sheet.
"use strict";
const charts = (() => {
  const KEEP = 300; // points of a line: a minute of a server's frames, five of a gateway's

  const svg = (tag, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    return e;
  };

  const short = n => {
    if (!Number.isFinite(n)) return "–";
    for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (Math.abs(n) >= size) return (n / size).toFixed(1) + " " + unit;
    return n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1);
  };

  const bytes = n => {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) if (n >= size) return (n / size).toFixed(1) + " " + unit;
    return n + " B";
  };

  // tile shows a number that changes and what it was lately. top fixes the scale's upper end (0: the largest value seen).
  function tile(parent, name, format = short, top = 0) {
    const box = document.createElement("div");
    box.className = "tile";
    const title = document.createElement("span");
    title.className = "muted";
    title.textContent = name;
    const value = document.createElement("b");
    value.textContent = "–";
    const picture = svg("svg", {viewBox: "0 0 300 48", preserveAspectRatio: "none", role: "img", "aria-label": name + ", lately"});
    const area = svg("polygon", {class: "area", points: ""});
    const line = svg("polyline", {class: "line", points: "", "vector-effect": "non-scaling-stroke"});
    picture.append(area, line);
    box.append(title, value, picture);
    parent.append(box);
    const points = [];
    return {
      push(v, limit = top) {
        points.push(v);
        if (points.length > KEEP) points.shift();
        value.textContent = format(v);
        const high = limit || Math.max(...points, 1e-9);
        const at = points.map((p, i) => `${KEEP - points.length + i},${(46 - 44 * Math.min(p / high, 1)).toFixed(1)}`);
        line.setAttribute("points", at.join(" "));
        area.setAttribute("points", `${KEEP - points.length},48 ${at.join(" ")} ${KEEP - 1},48`);
      },
    };
  }

  // heat shows how similar lines are: sim[i][j] between -1 and 1. The colour is the number, which is written too.
  function heat(parent, lines, sim) {
    const table = document.createElement("table");
    table.className = "heat";
    const caption = table.createCaption();
    caption.textContent = "Similarity of each line with each other";
    const head = table.createTHead().insertRow();
    head.insertCell();
    lines.forEach((_, j) => {
      const th = document.createElement("th");
      th.scope = "col";
      th.textContent = j + 1;
      head.append(th);
    });
    const body = table.createTBody();
    lines.forEach((text, i) => {
      const row = body.insertRow();
      const th = document.createElement("th");
      th.scope = "row";
      th.textContent = `${i + 1} ${text}`;
      th.title = text;
      row.append(th);
      sim[i].forEach((v, j) => {
        const cell = row.insertCell();
        cell.textContent = v.toFixed(2);
        cell.title = `${text} — ${lines[j]}`;
        const strength = Math.max(0, Math.min(1, v));
        cell.style.setProperty("--s", (strength * 100).toFixed(0) + "%");
        if (strength > 0.6) cell.classList.add("strong");
      });
    });
    parent.append(table);
  }

  // bars shows named numbers, the longest bar for the largest.
  function bars(parent, rows) {
    const high = Math.max(...rows.map(r => r.value)), low = Math.min(0, ...rows.map(r => r.value));
    const list = document.createElement("ol");
    list.className = "bars";
    for (const r of rows) {
      const item = document.createElement("li");
      const bar = document.createElement("span");
      bar.className = "bar";
      bar.style.width = (100 * (r.value - low) / (high - low || 1)).toFixed(1) + "%";
      const text = document.createElement("span");
      text.textContent = `${r.value.toFixed(4)}  ${r.name}`;
      item.append(bar, text);
      list.append(item);
    }
    parent.append(list);
  }

  return {tile, heat, bars, short, bytes};
})();
