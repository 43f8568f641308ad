// Package server is the HTTP front of a service. It serves health, metrics, status and pages, and
// mounts the inference routes of package inference over the service.
//
// Entry points: New, Serve, Shutdown. Package httpd provides what surrounds the routes: keys,
// bounds, hang-ups, draining. Options embeds httpd.Options. This package does no inference and
// knows models only through the service.
package server
