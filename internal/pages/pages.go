package pages

import (
	"embed"
	"path"

	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/httpd"
)

//go:embed static
var static embed.FS

// policy lets the pages load what this server serves, and nothing else. Where browsers know trusted
// types, no text becomes HTML or a script: names of models and pools come from others.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Routes returns the routes of the pages over an OpenAPI document. They need no API key: the pages
// are the same for everybody, and ask for a key themselves.
func Routes(document []byte) []httpd.Route {
	return []httpd.Route{
		{Method: "GET", Path: "/openapi.json", Open: true, Serve: func(r *httpd.Request, _ string) {
			send(r, document, "application/json")
		}},
		{Method: "GET", Path: "/docs", Open: true, Serve: page("docs.html")},
		{Method: "GET", Path: "/static/", Open: true, Serve: files},
		{Method: "GET", Path: "/", Open: true, Serve: page("index.html")},
	}
}

// page returns the handler of one page.
func page(name string) func(r *httpd.Request, _ string) {
	b := read(name)
	return func(r *httpd.Request, _ string) { send(r, b, "text/html; charset=utf-8") }
}

// files serves the scripts and the style sheet of the pages.
func files(r *httpd.Request, name string) {
	kind, ok := map[string]string{
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	}[path.Ext(name)]
	b, err := static.ReadFile("static/" + name)
	if err != nil || !ok {
		r.Fail(dialect.RouteNative, errs.NoRoute())
		return
	}
	send(r, b, kind)
}

func read(name string) []byte {
	b, err := static.ReadFile("static/" + name)
	if err != nil {
		panic("pages: " + name + " is not embedded")
	}
	return b
}

func send(r *httpd.Request, b []byte, contentType string) {
	r.SetContentType(contentType)
	r.Response.Header.Set("Cache-Control", "no-cache")
	r.Response.Header.Set("Content-Security-Policy", policy)
	r.Response.Header.Set("X-Content-Type-Options", "nosniff")
	r.SetBody(b)
}
