// Package pages serves what people open in a browser: the page to watch and try a server, its API
// as a page, and the OpenAPI document that the latter is made from. sie-server and the gateway
// serve the same files; a gateway's document has its own routes besides.
//
// Entry points: Routes, Document, GatewayDocument.
package pages
