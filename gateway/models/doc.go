// Package models tells the gateway which models there are, and which lane a request for one goes
// to.
//
// Entry points: New and Registry.Set; Registry.Find and Registry.FindOpenAI, which read the id of a
// request; Model.Route, which chooses the lane, and Model.Share, which
// divides requests among lanes with weights; Registry.List and Registry.Info for listings;
// Bootstrap, which keeps a Registry equal to what sie-config has; ParseLanes.
//
// A catalog with all that follows from it is one snapshot, which is replaced as a whole. A request
// finds its Model once and stays with that snapshot. The same request, lanes and workers always
// give the same lane: nothing depends on the order of a map.
//
// The package runs one goroutine, Bootstrap.Run, and only for a gateway that has a sie-config.
package models
