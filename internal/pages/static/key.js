// The caller's API key: kept for this tab, sent with every request, asked for when the server wants one.
"use strict";
const sie = {
  key: sessionStorage.getItem("sie-key") || "",

  setKey(key) {
    this.key = key;
    sessionStorage.setItem("sie-key", key);
  },

  // fetch is the browser's with the key; on a 401 it dispatches "sie-key", for the page to ask.
  async fetch(url, options = {}) {
    const headers = {...options.headers};
    if (this.key) headers["X-API-Key"] = this.key;
    const r = await fetch(url, {...options, headers});
    if (r.status === 401) dispatchEvent(new Event("sie-key"));
    return r;
  },

  // socket opens a WebSocket; browsers cannot give it headers, so the key is a subprotocol, base64url.
  socket(path) {
    const url = location.origin.replace(/^http/, "ws") + path;
    if (!this.key) return new WebSocket(url);
    const coded = btoa(this.key).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
    return new WebSocket(url, ["sie", "sie.key." + coded]);
  },
};
