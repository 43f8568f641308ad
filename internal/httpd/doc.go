// Package httpd is the shell of an HTTP server: keys, TLS, CORS, bounds on heads, bodies and
// answers, hang-ups, request ids, the access log, spans, feeds over WebSockets, and draining.
//
// Entry points: New with a table of Routes, Server.Serve and Shutdown; Request.Do for work with a
// body; NewKeys and NewTLS for who may use the server and how. A handler copies what it needs of a
// request before it returns to fasthttp's buffers. Bodies are read within a bound each, and held
// together with results within another; a client that leaves ends its request's context; during
// Shutdown work is refused with a retryable 503 while running work finishes.
//
// Goroutines: fasthttp's connection workers, one that watches for hang-ups, two per socket of a
// feed. The package knows neither models nor what a route does. Nothing it logs holds a key, a
// text, or a header other than the request's id.
package httpd
