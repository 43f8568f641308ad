// Tables of any number of rows: a filter, pages of rows, and rows that change in place, so that they can be read and selected.
"use strict";
const tables = (() => {
  const PAGE = 50; // rows that are in the page at once, of each table

  // few shows the beginning of a list of names.
  const few = (names, most = 3) => names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${names.length - most} more`;

  // lasted shows a time in seconds.
  const lasted = s => s < 0 ? "0 s" : s < 120 ? s.toFixed(0) + " s" : s < 7200 ? (s / 60).toFixed(0) + " min" : s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " d";

  // table looks after the table of an id, whose head names its columns and whose attribute data-empty says what no row means.
  // Of up to small rows no filter is shown. show takes all rows: {key, cells, state, find}. A cell is a text or {text, title};
  // state becomes an attribute of the row; find returns what the filter looks through, by default the texts.
  function table(id, small = 8) {
    const table = document.getElementById(id), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const tools = document.createElement("p"), label = document.createElement("label"), filter = document.createElement("input");
    const count = document.getElementById(id + "-count"), place = document.createElement("span");
    const earlier = document.createElement("button"), later = document.createElement("button");
    tools.className = "row tools";
    tools.hidden = true;
    filter.id = id + "-filter";
    filter.type = "search";
    filter.placeholder = "words of a row";
    label.append("Show ", filter);
    place.className = "muted";
    earlier.textContent = "Earlier";
    later.textContent = "Later";
    for (const b of [earlier, later]) b.type = "button", b.setAttribute("aria-controls", id);
    tools.append(label, earlier, place, later);
    table.closest(".scroll").before(tools);

    let all = [], rows = new Map(), page = 0, pages = 1;

    const words = r => (r.find ? r.find() : r.cells.map(c => c.text ?? c).join(" ")).toLowerCase();

    function fill(row, r) {
      if (row.cells.length !== heads.length) {
        row.replaceChildren();
        for (const h of heads) row.insertCell().className = h.className;
      }
      r.cells.forEach((c, i) => {
        const cell = row.cells[i], text = String(c.text ?? c), title = c.title ?? "";
        if (cell.textContent !== text) cell.textContent = text;
        if (cell.title !== title) cell.title = title;
      });
      if (row.dataset.state !== (r.state ?? "")) row.dataset.state = r.state ?? "";
    }

    function draw() {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = wanted.length ? all.filter(r => { const text = words(r); return wanted.every(w => text.includes(w)); }) : all;
      pages = Math.max(1, Math.ceil(found.length / PAGE));
      page = Math.min(page, pages - 1);
      const shown = found.slice(page * PAGE, (page + 1) * PAGE);
      if (!shown.length) shown.push({key: null, state: "none", cells: [all.length ? "No row has these words." : table.dataset.empty]});
      const keys = new Set(shown.map(r => r.key));
      for (const [key, row] of rows) if (!keys.has(key)) row.remove(), rows.delete(key);
      shown.forEach((r, i) => {
        const row = rows.get(r.key) ?? document.createElement("tr");
        rows.set(r.key, row);
        if (r.key === null) {
          if (!row.cells.length) row.insertCell().colSpan = heads.length;
          row.cells[0].textContent = r.cells[0];
          row.dataset.state = r.state;
        } else fill(row, r);
        if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
      });
      tools.hidden = all.length <= small && !filter.value;
      earlier.hidden = later.hidden = place.hidden = pages === 1;
      earlier.setAttribute("aria-disabled", page === 0);
      later.setAttribute("aria-disabled", page === pages - 1);
      place.textContent = `${page * PAGE + 1} to ${Math.min((page + 1) * PAGE, found.length)}`;
      const text = all.length ? `${found.length} of ${all.length}` : "";
      if (count && count.textContent !== text) count.textContent = text;
    }

    function turn(by) {
      page = Math.max(0, Math.min(page + by, pages - 1));
      draw();
    }
    earlier.addEventListener("click", () => turn(-1));
    later.addEventListener("click", () => turn(1));
    filter.addEventListener("input", () => {
      page = 0;
      draw();
    });

    return {
      show(list) {
        all = list;
        draw();
      },
    };
  }

  return {table, few, lasted};
})();
