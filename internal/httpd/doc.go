// Package httpd runs the HTTP server that every route shares: keys, TLS, CORS, bounds on heads,
// bodies and answers, hang-ups, request ids, the access log, spans, feeds over WebSockets, and
// draining.
//
// Entry points: New with a table of Routes, Server.Serve and Shutdown; Request.Do for work with a
// body; NewTLS for encryption; package tenant for keys. A handler copies the parts of a
// request that it keeps before it returns, because fasthttp reuses its buffers. One bound limits
// each body. The Gate of Options, which other entrances may share, admits work and bounds all
// bodies and results that are in memory together. A client that leaves ends its request's context.
// During Shutdown new work is refused with a retryable 503 while running work finishes.
//
// Goroutines: fasthttp's connection workers, one that watches for hang-ups, and two for each socket
// of a feed. The package knows neither models nor the purpose of a route. It logs no key, no text,
// and no header except the request's id.
package httpd
