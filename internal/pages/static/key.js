// The caller's API key: typed by the user, kept in this page's memory alone, sent with every request. The page asks for it
// when the server wants one, and dispatches "sie-key" when it has a new one.
"use strict";
const sie = (() => {
  const form = document.createElement("form"), label = document.createElement("label"), input = document.createElement("input");
  const button = document.createElement("button"), note = document.createElement("span");
  form.id = "ask";
  form.className = "card row";
  form.hidden = true;
  label.htmlFor = input.id = "key";
  input.type = "password";
  input.autocomplete = "off";
  input.required = true;
  button.textContent = "Use it";
  note.className = "muted";
  note.textContent = "It stays in this page's memory: reloading the page forgets it.";
  form.append(label, input, button, note);
  document.querySelector("main").prepend(form);

  const it = {
    key: "",

    // fetch is the browser's with the key. On a 401 the page asks for one.
    async fetch(url, options = {}) {
      const key = it.key, headers = {...options.headers};
      if (key) headers["X-API-Key"] = key;
      const r = await fetch(url, {...options, headers});
      if (r.status === 401 && key === it.key) it.ask();
      return r;
    },

    ask() {
      label.textContent = it.key ? "The server does not know this API key; another one" : "This server needs an API key";
      form.hidden = false;
      if (document.activeElement === document.body) input.focus();
    },

    // waits reports whether the page waits for a key.
    waits: () => !form.hidden,

    // socket opens a WebSocket; browsers cannot give it headers, so the key is a subprotocol, base64url.
    socket(path) {
      const url = location.origin.replace(/^http/, "ws") + path;
      if (!it.key) return new WebSocket(url);
      const coded = btoa(it.key).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
      return new WebSocket(url, ["sie", "sie.key." + coded]);
    },
  };
  form.addEventListener("submit", e => {
    e.preventDefault();
    it.key = input.value.trim();
    input.value = "";
    form.hidden = true;
    dispatchEvent(new Event("sie-key"));
  });
  return it;
})();
