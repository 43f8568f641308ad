// Package server is the HTTP front of a service. It serves the native routes in msgpack and JSON,
// model listings, health, metrics, status and pages. It also mounts the routes of other APIs, which
// package compat holds.
//
// Entry points: New, Serve, Shutdown. Package httpd provides what surrounds the routes: keys,
// bounds, hang-ups, draining. Options embeds httpd.Options. This package does no inference and
// knows models only through the service.
package server
