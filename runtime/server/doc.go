// Package server is the HTTP front of a service: the native routes in msgpack and JSON, model
// listings, health, metrics, status and pages, and the routes of other APIs, which package compat
// has.
//
// Entry points: New, Serve, Shutdown. The shell around the routes - keys, bounds, hang-ups,
// draining - is package httpd's; Options embeds its Options. The package does no inference, and
// knows models only through the service.
package server
